#include "planner/pytorch/running.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>
#include <ranges>
#include <stdexcept>
#include <string_view>

#include "base/input_file.h"
#include "base/limits.h"
#include "base/process/command_line.h"

namespace shardlens::planner {

namespace {

constexpr std::string_view kEngine = "pytorch";

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

  /// Leaves a value to another command of ours, which tries several: "{batch}".
  void leave_open(const std::string& name) {
    for (Setting& one : settings_) {
      if (one.name == name) one.given = "{" + name + "}";
    }
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

/// Flags of the plan itself.
struct RunningFlags {
  std::string engine, gpu, capacity, beside, world, rank, ranks, out, python = "python", write,
                                                                      solve;
  bool explain = false;

  void add_to(CLI::App& app) {
    app.add_option("--engine", engine);
    app.add_option("--gpu", gpu);
    app.add_option("--capacity", capacity);
    app.add_option("--beside", beside);
    app.add_option("--world", world);
    app.add_option("--rank", rank);
    app.add_option("--ranks", ranks);
    app.add_option("--out", out);
    app.add_option("--python", python);
    app.add_option("--write", write);
    app.add_option("--solve", solve)->check(CLI::IsMember({"batch", "seq"}));
    app.add_flag("--explain", explain);
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
    return flags;
  }
};

}  // namespace

bool plans_by_running(const std::vector<std::string>& arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i] == fmt::format("--engine={}", kEngine)) return true;
    if (arguments[i] == "--engine" && i + 1 < arguments.size() && arguments[i + 1] == kEngine) {
      return true;
    }
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
  if (!flags.write.empty()) return {.write = flags.write, .program = settings.written()};
  if (flags.gpu.empty()) {
    throw std::invalid_argument("--gpu is missing; name the GPU to plan for, such as --gpu h100");
  }
  if (flags.explain && !flags.solve.empty()) {
    throw std::invalid_argument("--explain and --solve exclude each other; remove one");
  }
  if (!flags.solve.empty()) settings.leave_open(flags.solve);
  RunningPlan plan;
  plan.command = {flags.explain ? "advise" : flags.solve.empty() ? "record" : "solve"};
  const auto append = [&plan](const std::vector<std::string>& words) {
    plan.command.insert(plan.command.end(), words.begin(), words.end());
  };
  append(flags.of_record());
  append({"--", flags.python, program.string()});
  append(settings.flags());
  return plan;
}

std::string running_help(const std::filesystem::path& program) {
  std::string text =
      "usage: shardlens plan --engine pytorch --gpu NAME [flags]\n\n"
      "Runs a training program for a model of transformers, sharded with PyTorch's FSDP2, on a\n"
      "simulated GPU, and says what it takes.\n\n"
      "  --gpu NAME                 the GPU to plan for: h200, h100, l4, ...\n"
      "  --world W                  ranks; default: 1\n"
      "  --rank R, --ranks roles    which of them are run; default: rank 0\n"
      "  --capacity SIZE            memory of the GPU; default: that of its kind\n"
      "  --beside SIZE              memory beside PyTorch, if you know it\n"
      "  --solve batch|seq          the largest batch or sequence that fits\n"
      "  --explain                  what would make it fit, by running it with each lever\n"
      "  --write FILE.py            write the program with these settings, ready for torchrun\n"
      "  --python PYTHON            a Python with torch and transformers; default: python\n"
      "  --out DIR                  folder of the recording\n\n"
      "settings of the program:\n";
  for (const Setting& setting : settings_in(source_of(program))) {
    const std::string name = "--" + setting.flag();
    text += fmt::format("  {:<26} {} (default: {})\n", name, setting.help, setting.value);
  }
  return text +
         "\nIt ends as shardlens record, solve or advise does: 0 fits, 4 fits only with allocator\n"
         "retries, 3 does not fit, 5 nothing was recorded, 2 wrong usage.\n";
}

}  // namespace shardlens::planner
