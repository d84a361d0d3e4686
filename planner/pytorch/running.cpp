#include "planner/pytorch/running.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <string_view>

#include "base/input_file.h"
#include "base/limits.h"
#include "base/process/command_line.h"
#include "models/llama.h"
#include "models/spec.h"
#include "models/vit.h"

namespace shardlens::planner {

namespace {

constexpr std::array<std::string_view, 2> kEngines = {"pytorch", "pytorch-fsdp2"};
constexpr const char* kModelHint =
    "give a config.json, a name on Hugging Face, or a preset of the families llama and vit";

/// A line of SETTINGS in train.py: `    "seq": 2048,  # tokens of a sample`.
struct Setting {
  std::string name;   // "param_dtype"
  std::string value;  // as Python writes it
  std::string help;
  size_t value_at = 0;     // in the program's text
  std::string given = {};  // by the flag; empty: the program's own value

  std::string flag() const {
    std::string words = name;
    std::ranges::replace(words, '_', '-');
    return words;
  }
  bool is_switch() const { return value == "False" || value == "True"; }
  bool is_word() const { return value.starts_with('"'); }
  bool is_fraction() const { return value.find_first_of(".e") != std::string::npos; }
};

std::optional<Setting> setting_in(std::string_view line, size_t at) {
  const size_t name = line.find('"'), end = line.find("\": ");
  if (name == std::string_view::npos || end == std::string_view::npos) return std::nullopt;
  const size_t value = end + 3, comma = line.find(',', value);
  if (comma == std::string_view::npos) return std::nullopt;
  const size_t hash = line.find("# ", comma);
  return Setting{.name = std::string(line.substr(name + 1, end - name - 1)),
                 .value = std::string(line.substr(value, comma - value)),
                 .help = std::string(hash == std::string_view::npos ? "" : line.substr(hash + 2)),
                 .value_at = at + value};
}

std::vector<Setting> settings_in(const std::string& text) {
  std::vector<Setting> settings;
  size_t at = text.find("\nSETTINGS = {\n");
  if (at == std::string::npos) return settings;
  for (at = text.find('\n', at + 1) + 1; at < text.size() && text[at] != '}';) {
    const size_t end = text.find('\n', at);
    if (const auto setting = setting_in(std::string_view(text).substr(at, end - at), at)) {
      settings.push_back(*setting);
    }
    at = end + 1;
  }
  return settings;
}

/// Returns the words of a text that are in quotes.
std::vector<std::string> quoted_words(std::string_view text) {
  std::vector<std::string> words;
  for (size_t open = text.find('"'); open != text.npos; open = text.find('"')) {
    text.remove_prefix(open + 1);
    const size_t close = text.find('"');
    if (close == text.npos) break;
    words.emplace_back(text.substr(0, close));
    text.remove_prefix(close + 1);
  }
  return words;
}

/// Returns the values of CHOICES that a setting may have; nothing if any will do.
std::vector<std::string> choices_of(const std::string& text, const std::string& setting) {
  const size_t table = text.find("\nCHOICES = {\n");
  if (table == std::string::npos) return {};
  const std::string opening = fmt::format("\"{}\": (", setting);
  const size_t at = text.find(opening, table);
  if (at == std::string::npos || at > text.find("\n}", table)) return {};
  const size_t first = at + opening.size();
  return quoted_words(std::string_view(text).substr(first, text.find(')', first) - first));
}

/// True if the whole text is a number of at least 0.
template <class Number>
bool is_positive_or_zero(const std::string& text) {
  Number number = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  return read.ec == std::errc{} && read.ptr == end && number >= 0;
}

void check_setting(const std::string& text, const Setting& setting) {
  if (setting.given.empty() || setting.is_switch()) return;
  const std::string flag = fmt::format("--{} {}", setting.flag(), setting.given);
  if (!setting.is_word()) {
    if (setting.is_fraction() ? is_positive_or_zero<double>(setting.given)
                              : is_positive_or_zero<int64_t>(setting.given)) {
      return;
    }
    throw std::invalid_argument(fmt::format("{}: give a number of at least 0{}", flag,
                                            setting.is_fraction() ? "" : ", without a fraction"));
  }
  const std::vector<std::string> choices = choices_of(text, setting.name);
  if (choices.empty() || std::ranges::find(choices, setting.given) != choices.end()) return;
  throw std::invalid_argument(
      fmt::format("{}: not supported; give one of {}", flag, fmt::join(choices, ", ")));
}

/// Returns the words of train.py's --model for a model of ours: "llama:hidden_size=2048,...".
std::string words_in_transformers(const models::ModelSpec& spec) {
  if (spec.is<models::LlamaSizes>()) {
    const auto& sizes = spec.as<models::LlamaSizes>();
    return fmt::format(
        "llama:hidden_size={},intermediate_size={},num_hidden_layers={},num_attention_heads={},"
        "num_key_value_heads={},vocab_size={},rope_theta={},tie_word_embeddings={}",
        sizes.width, sizes.mlp_width, sizes.layers, sizes.heads, sizes.kv_heads, sizes.vocab,
        sizes.rope_theta, sizes.tied);
  }
  if (spec.is<models::VitSizes>()) {
    const auto& sizes = spec.as<models::VitSizes>();
    return fmt::format(
        "vit:image_size={},patch_size={},num_channels={},num_hidden_layers={},"
        "num_attention_heads={},hidden_size={},intermediate_size={},num_labels={}",
        sizes.image_px, sizes.patch_px, sizes.channels, sizes.layers, sizes.heads, sizes.width,
        sizes.mlp_width, sizes.classes);
  }
  throw std::invalid_argument(
      fmt::format("--model {}: transformers has no such model; {}", spec.name, kModelHint));
}

/// Returns what train.py takes for a value of --model: the same, except for our presets.
std::string model_words(const std::string& given) {
  const std::vector<std::string> presets = models::preset_names();
  const bool is_preset = std::ranges::find(presets, given) != presets.end();
  return is_preset ? words_in_transformers(models::find_spec(given)) : given;
}

std::string source_of(const std::filesystem::path& program) {
  return read_file(program, kWritten.bytes, "install Shardlens again: it comes with this file");
}

/// Holds the values that flags give to settings.
class GivenSettings {
 public:
  explicit GivenSettings(const std::string& text) : text_(text), settings_(settings_in(text)) {}

  void add_to(CLI::App& app) {
    for (Setting& one : settings_) {
      const std::string flag = "--" + one.flag();
      if (one.is_switch()) {
        app.add_flag_callback(flag, [&one] { one.given = "True"; });
      } else {
        app.add_option(flag, one.given);
      }
    }
  }

  /// Checks what was given. Throws std::invalid_argument.
  void take() {
    for (Setting& one : settings_) {
      check_setting(text_, one);
      if (one.name == "model" && !one.given.empty()) one.given = model_words(one.given);
    }
  }

  /// Leaves a value to another command of ours, which tries several: "{batch}".
  void leave_open(const std::string& name) {
    for (Setting& one : settings_) {
      if (one.name == name) one.given = "{" + name + "}";
    }
  }

  /// Returns the value that the program will have; nothing if it has no such setting.
  std::string value_of(const std::string& name) const {
    const auto one = std::ranges::find(settings_, name, &Setting::name);
    if (one == settings_.end()) return {};
    if (!one->given.empty()) return one->given;
    return one->is_word() ? one->value.substr(1, one->value.size() - 2) : one->value;
  }

  bool is_given(const std::string& name) const {
    const auto one = std::ranges::find(settings_, name, &Setting::name);
    return one != settings_.end() && !one->given.empty();
  }

  std::vector<std::string> flags() const {
    std::vector<std::string> flags;
    for (const Setting& one : settings_) {
      if (one.given.empty()) continue;
      flags.push_back("--" + one.flag());
      if (!one.is_switch()) flags.push_back(one.given);
    }
    return flags;
  }

  /// Returns the program with the given values in place of its own.
  std::string written() const {
    std::string text = text_;
    for (const Setting& one : std::views::reverse(settings_)) {  // so that places stay
      if (one.given.empty()) continue;
      text.replace(one.value_at, one.value.size(),
                   one.is_word() ? python_text(one.given) : one.given);
    }
    return text;
  }

 private:
  static std::string python_text(const std::string& text) {
    std::string quoted = "\"";
    for (const char c : text) {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
    return quoted + '"';
  }

  std::string text_;
  std::vector<Setting> settings_;
};

// ---- what a search tries ------------------------------------------------------------------------

/// The most ranks among which a layer is split: the GPUs of a usual node.
constexpr int64_t kMostParts = 8;

int64_t number_in(const std::string& text) {
  int64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// Returns "--recompute none" as "" if that is the value anyway, so that tables show changes.
std::string setting_flag(const GivenSettings& settings, const std::string& name,
                         const std::string& value) {
  if (settings.value_of(name) == value) return {};
  std::string flag = name;
  std::ranges::replace(flag, '_', '-');
  return fmt::format("--{} {}", flag, value);
}

/// Returns ways to split layers; a rank then has more microbatches, so that a step sees as many
/// samples.
std::vector<std::string> splits(const GivenSettings& settings, int64_t world) {
  const int64_t replicas = std::max<int64_t>(1, number_in(settings.value_of("replicas")));
  const int64_t parts = number_in(settings.value_of("accumulate"));
  std::vector<std::string> splits = {""};
  for (int64_t ranks = 2; ranks <= std::min(kMostParts, world / replicas); ranks *= 2) {
    if (world / replicas % ranks != 0) continue;
    splits.push_back(fmt::format("--tp {} --accumulate {}", ranks, ranks * parts));
  }
  return splits;
}

/// Returns the alternatives of settings that were not given, each from the cheapest value on. Each
/// setting costs more than all before it: communication, then compute, copies, other numbers.
std::vector<std::vector<std::string>> choices_to_try(const GivenSettings& settings, int64_t world) {
  struct SearchedSetting {
    std::string name;
    std::vector<std::string> values;
    bool needs_shards;  // only applies if parameters are sharded
  };
  const std::vector<SearchedSetting> searched = {{"reshard_after_forward", {"false", "true"}, true},
                                                 {"tp", {}, true},
                                                 {"recompute", {"none", "every:2", "full"}, false},
                                                 {"offload", {"none", "all"}, true},
                                                 {"param_dtype", {"fp32", "bf16"}, false}};
  const std::string strategy = settings.value_of("strategy");
  const bool shards = strategy == "fsdp" || strategy == "hsdp";
  const bool has_adapters = settings.value_of("lora") != "0";
  const bool has_four_bits = settings.value_of("quantize") != "none";
  const bool is_of_transformers = !settings.value_of("model").starts_with("torchvision:") &&
                                  !settings.value_of("model").starts_with("timm:");
  std::vector<std::vector<std::string>> choices;
  for (const SearchedSetting& one : searched) {
    if (settings.is_given(one.name) || (one.needs_shards && !shards)) continue;
    const bool is_split = one.name == "tp";
    if (world == 1 && (is_split || one.name == "reshard_after_forward")) continue;
    if (is_split && (has_adapters || !is_of_transformers)) continue;
    if (one.name == "offload" && has_four_bits) continue;
    std::vector<std::string> flags =
        is_split ? splits(settings, world) : std::vector<std::string>{};
    for (const std::string& value : one.values) {
      flags.push_back(setting_flag(settings, one.name, value));
    }
    if (flags.size() > 1) choices.push_back(std::move(flags));
  }
  return choices;
}

/// Returns the flags of `shardlens sweep` that name the alternatives. Throws std::invalid_argument
/// if there are none.
std::vector<std::string> choice_flags(const GivenSettings& settings, int64_t world) {
  std::vector<std::string> flags;
  for (const auto& alternatives : choices_to_try(settings, world)) {
    flags.push_back(fmt::format("--choices={}", fmt::join(alternatives, "|")));
  }
  if (!flags.empty()) return flags;
  throw std::invalid_argument(
      "--search: each setting is given; leave one out, such as --recompute");
}

/// Throws std::invalid_argument if no program of these settings can run.
void check_run(const GivenSettings& settings, int64_t world) {
  const std::string model = settings.value_of("model");
  if (model.ends_with(".json") && !std::filesystem::exists(model)) {
    throw std::invalid_argument(
        fmt::format("--model {}: there is no such file; {}", model, kModelHint));
  }
  const int64_t replicas = number_in(settings.value_of("replicas"));
  const int64_t parts = number_in(settings.value_of("tp"));
  // The product itself may be too large for a number.
  if (replicas < 1 || parts < 1 || world % replicas != 0 || world / replicas % parts != 0) {
    throw std::invalid_argument(
        fmt::format("--replicas {} --tp {}: the product does not divide {} rank{}", replicas, parts,
                    world, world == 1 ? "" : "s"));
  }
}

/// Flags of the plan itself.
struct RunningFlags {
  std::string engine, gpu, capacity, beside, world, rank, ranks, out, solve, write, words, torch;
  std::string calibration, by;
  std::string python = "python";
  bool explain = false, search = false, json = false, time = false;

  void add_to(CLI::App& app) {
    app.add_option("--engine", engine);
    app.add_option("--gpu", gpu);
    app.add_option("--capacity", capacity);
    app.add_option("--beside", beside);
    app.add_option("--world,--workers", world);
    app.add_option("--rank", rank);
    app.add_option("--ranks", ranks);
    app.add_option("--out", out);
    app.add_option("--python", python);
    app.add_option("--write", write);
    app.add_option("--solve", solve)->check(CLI::IsMember({"batch", "seq"}));
    app.add_flag("--explain", explain);
    app.add_flag("--search", search);
    app.add_flag("--json", json);
    app.add_flag("--time", time);
    app.add_option("--calibration", calibration);
    app.add_option("--by", by);
    app.add_option("--pytorch", words);
    app.add_option("--torch", torch);
  }

  void require_consistent() const {
    if (!words.empty()) {
      throw std::invalid_argument(
          "--pytorch: the program is run now, not modelled; --write FILE.py gives it to you: edit "
          "it, and shardlens record says what it takes");
    }
    if (!torch.empty()) {
      throw std::invalid_argument(
          "--torch: the program runs with an installed PyTorch; give --python PYTHON, one that "
          "has it");
    }
    if (!write.empty()) return;
    if (gpu.empty()) {
      throw std::invalid_argument("--gpu is missing; name the GPU to plan for, such as --gpu h100");
    }
    if (int{explain} + int{search} + int{!solve.empty()} > 1) {
      throw std::invalid_argument("--explain, --search and --solve exclude each other; give one");
    }
    if (!by.empty() && !explain && !search) {
      throw std::invalid_argument(
          fmt::format("--by {}: only orders what --explain or --search tries; add one", by));
    }
  }

  /// Returns the command of ours that answers.
  const char* command() const {
    if (explain) return "advise";
    if (search) return "sweep";
    return solve.empty() ? "record" : "solve";
  }

  std::vector<std::string> of_record() const {
    std::vector<std::string> flags = {"--device", "null:" + gpu};
    const auto add = [&](const char* flag, const std::string& value) {
      if (!value.empty()) flags.insert(flags.end(), {flag, value});
    };
    add("--capacity", capacity);
    add("--beside", beside);
    add("--world", world.empty() ? "1" : world);
    add("--ranks", ranks);
    if (ranks.empty()) add("--rank", rank.empty() ? "0" : rank);
    add("--out", out);
    if (time) flags.emplace_back("--time");
    add("--calibration", calibration);
    add("--by", by);
    return flags;
  }
};

}  // namespace

bool plans_by_running(const std::vector<std::string>& arguments) {
  const auto is_engine = [](std::string_view word) {
    return std::ranges::find(kEngines, word) != kEngines.end();
  };
  constexpr std::string_view kFlag = "--engine";
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string_view word = arguments[i];
    if (word == kFlag && i + 1 < arguments.size() && is_engine(arguments[i + 1])) return true;
    if (word.starts_with("--engine=") && is_engine(word.substr(kFlag.size() + 1))) return true;
  }
  return false;
}

RunningPlan plan_by_running(const std::vector<std::string>& arguments,
                            const std::filesystem::path& program) {
  CLI::App app;
  RunningFlags flags;
  GivenSettings settings(source_of(program));
  flags.add_to(app);
  settings.add_to(app);
  try {
    parse_flags(app, arguments);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format(
        "{}: --engine pytorch takes the flags of shardlens plan --engine pytorch --help",
        error.what()));
  }
  flags.require_consistent();
  settings.take();
  RunningPlan plan;
  if (!flags.write.empty()) {
    plan.write = flags.write;
    plan.program = settings.written();
    return plan;
  }
  const int64_t world_size = flags.world.empty() ? 1 : number_in(flags.world);
  check_run(settings, world_size);
  if (!flags.solve.empty()) settings.leave_open(flags.solve);
  plan.command = {flags.command()};
  const auto append = [&plan](const std::vector<std::string>& words) {
    plan.command.insert(plan.command.end(), words.begin(), words.end());
  };
  const bool is_one_run = plan.command.front() == "record";
  if (flags.json && is_one_run) {
    if (flags.out.empty()) flags.out = default_folder({program.string()});
    plan.json_of = flags.out;
  }
  append(flags.of_record());
  if (flags.json && !is_one_run) append({"--json"});
  if (flags.search) append(choice_flags(settings, world_size));
  append({"--", flags.python, program.string()});
  append(settings.flags());
  return plan;
}

std::string running_help(const std::filesystem::path& program) {
  std::string text =
      "usage: shardlens plan --engine pytorch --gpu NAME [flags]\n\n"
      "Runs a training program for a model of transformers, torchvision or timm, sharded with\n"
      "PyTorch's FSDP2, on a simulated GPU, and says what it takes.\n\n"
      "  --gpu NAME                 the GPU to plan for: h200, h100, l4, ...\n"
      "  --world W, --workers W     ranks; default: 1\n"
      "  --rank R, --ranks roles    which of them are run; default: rank 0\n"
      "  --capacity SIZE            memory of the GPU; default: that of its kind\n"
      "  --beside SIZE              memory beside PyTorch, if you know it\n"
      "  --solve batch|seq          the largest batch or sequence that fits\n"
      "  --search                   the cheapest settings that fit, by running all combinations\n"
      "                             of those that are not given: --reshard-after-forward, --tp,\n"
      "                             --recompute, --offload and --param-dtype\n"
      "  --explain                  what would make it fit, by running it with each lever\n"
      "  --time                     how long a step takes, too, also of what is tried\n"
      "  --calibration FILE         the same with the times that shardlens calibrate wrote\n"
      "  --by time                  with --search or --explain: the fastest that fits, not the\n"
      "                             cheapest\n"
      "  --json                     print JSON, of one run that of profile report\n"
      "  --write FILE.py            write the program with these settings, ready for torchrun\n"
      "  --python PYTHON            a Python with torch and transformers; default: python\n"
      "  --out DIR                  folder of the recording\n\n"
      "settings of the program:\n";
  for (const Setting& setting : settings_in(source_of(program))) {
    const std::string name = "--" + setting.flag();
    text += fmt::format("  {:<26} {} (default: {})\n", name, setting.help, setting.value);
  }
  return text +
         "\nIt ends as shardlens record, solve, sweep or advise does: 0 fits, 4 fits only with "
         "allocator\n"
         "retries, 3 does not fit, 5 nothing was recorded, 2 wrong usage.\n";
}

}  // namespace shardlens::planner
