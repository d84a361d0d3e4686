#include "profiler/record/record_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <stdexcept>
#include <string_view>

#include "base/gpus.h"
#include "base/process/command_line.h"
#include "base/units.h"
#include "profiler/null_device/null_device.h"

namespace shardlens::profiler {

namespace {

using Words = std::vector<std::string>;

constexpr std::string_view kCuda = "cuda";
constexpr int kUsualGpusPerNode = 8;

int64_t parse_size(std::string_view flag, const std::string& text) {
  try {
    return parse_bytes(text);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("{} {}", flag, error.what()));
  }
}

std::optional<int64_t> parse_beside(const std::string& text) {
  constexpr std::array kNothing = {"0", "0B", "0KiB", "0MiB", "0GiB"};
  if (text.empty()) return std::nullopt;
  if (std::ranges::find(kNothing, text) != kNothing.end()) return 0;
  return parse_size("--beside", text);
}

int64_t parse_capacity(const std::string& text) {
  if (text.empty()) return 0;
  const int64_t bytes = parse_size("--capacity", text);
  if (bytes <= kMostNullBytes) return bytes;
  throw std::invalid_argument(
      fmt::format("--capacity {}: a simulated GPU has at most {}; give less", text,
                  bytes_text(kMostNullBytes)));
}

/// Returns true if growth is to fail.
bool parse_fail_on(const std::string& text) {
  if (text.empty() || text == "growth") return !text.empty();
  throw std::invalid_argument(fmt::format(
      "--fail-on {}: unknown; give growth, since all other failures fail without this flag", text));
}

Device parse_device(const std::string& text, const std::string& capacity) {
  if (text == kCuda) return {.kind = DeviceKind::cuda, .gpu = ""};
  if (!text.starts_with(kNullDevice)) {
    throw std::invalid_argument(fmt::format(
        "--device {}: give cuda for the GPUs of this machine, or a simulated GPU, such as "
        "null:h100",
        text));
  }
  const std::string gpu = text.substr(kNullDevice.size());
  find_gpu(gpu);
  return {.kind = DeviceKind::null, .gpu = gpu, .capacity_bytes = parse_capacity(capacity)};
}

struct GivenFlag {
  const char* flag;
  bool is_given;
};

/// Throws if a flag is given that only applies to a null device: this machine's ranks and memory
/// are fixed.
void expect_no_simulation(const RecordOptions& options, std::vector<GivenFlag> flags) {
  flags.insert(flags.end(), {{"--world", options.world_size.has_value()},
                             {"--rank", options.rank.has_value()},
                             {"--gpus-per-node", options.gpus_per_node.has_value()},
                             {"--true", !options.true_at.empty()},
                             {"--find-levers", options.looks},
                             {"--time", options.traces_work},
                             {"--calibration", !options.calibration.empty()}});
  const auto found = std::ranges::find_if(flags, &GivenFlag::is_given);
  if (found == flags.end()) return;
  throw std::invalid_argument(fmt::format(
      "{}: only applies to a simulated GPU; remove it, or name one, such as --device null:h100",
      found->flag));
}

void check_nodes(const RecordOptions& options) {
  const int size = options.world_size.value_or(options.gpus_per_node.value_or(1));
  if (size % options.gpus() == 0) return;
  throw std::invalid_argument(
      fmt::format("--gpus-per-node {}: all nodes must have the same number of ranks; give a "
                  "divisor of the world size, {}",
                  options.gpus(), size));
}

void check_gpu_lever(const RecordOptions& options, bool has_capacity) {
  const bool has_lever =
      std::ranges::find(options.levers, "gpu", &Lever::name) != options.levers.end();
  if (!has_lever || !has_capacity) return;
  throw std::invalid_argument(
      "--capacity and --with gpu: both set the GPU's memory; give one of them");
}

void check_gpu_index(const RecordOptions& options) {
  if (options.is_attached() || !options.gpu_index || *options.gpu_index < options.gpus()) return;
  throw std::invalid_argument(fmt::format(
      "--gpu-index {}: the program's last GPU is {}; --gpus-per-node N gives it GPUs 0 to N - 1",
      *options.gpu_index, options.gpus() - 1));
}

/// Removes a number such as ":30" from the end of `place`. Returns false if there is none.
bool take_number(std::string_view& place) {
  const size_t colon = place.rfind(':');
  if (colon == std::string_view::npos || colon + 1 == place.size()) return false;
  if (!std::ranges::all_of(place.substr(colon + 1), ::isdigit)) return false;
  place = place.substr(0, colon);
  return true;
}

void check_places(const Words& places) {
  for (const std::string& place : places) {
    std::string_view file = place;
    const bool has_line = take_number(file);
    take_number(file);  // the second number says which time is the first
    if (has_line && !file.empty() && file.find(':') == std::string_view::npos) continue;
    throw std::invalid_argument(fmt::format(
        "--true {}: give a file and a line, such as train.py:30, or train.py:30:5 to start at the "
        "fifth time",
        place));
  }
}

WantedRanks parse_ranks(const std::string& text) {
  if (text == "all") return {.kind = WantedRanks::Kind::all};
  if (text == "roles") return {.kind = WantedRanks::Kind::roles};
  WantedRanks wanted{.kind = WantedRanks::Kind::listed};
  const std::string_view all = text;
  for (size_t begin = 0; begin <= all.size();) {
    const size_t end = std::min(all.find(',', begin), all.size());
    int rank = 0;
    const auto [stop, error] = std::from_chars(all.data() + begin, all.data() + end, rank);
    if (error != std::errc() || stop != all.data() + end) {
      throw std::invalid_argument(
          fmt::format("--ranks {}: give all, roles, or ranks such as 0,3", text));
    }
    const bool is_new = std::ranges::find(wanted.listed, rank) == wanted.listed.end();
    if (is_new) wanted.listed.push_back(rank);
    begin = end + 1;
  }
  return wanted;
}

/// Returns true if all values are to be drawn.
bool parse_init(const std::string& text) {
  if (text.empty() || text == "skip" || text == "keep") return text == "keep";
  throw std::invalid_argument(fmt::format("--init {}: unknown; give skip or keep", text));
}

Routing parse_routing(const std::string& text) {
  constexpr std::string_view kSkewed = "skewed:";
  if (text == "balanced") return {.kind = Routing::Kind::balanced};
  if (text == "worst") return {.kind = Routing::Kind::worst};
  double factor = 0;
  if (text.starts_with(kSkewed)) {
    const auto [stop, error] =
        std::from_chars(text.data() + kSkewed.size(), text.data() + text.size(), factor);
    const bool is_whole = error == std::errc() && stop == text.data() + text.size();
    if (!is_whole || !std::isfinite(factor)) factor = 0;
  }
  if (factor >= 1) return {.kind = Routing::Kind::skewed, .factor = factor};
  throw std::invalid_argument(fmt::format(
      "--routing {}: give balanced, worst, or skewed:F, where the busiest expert gets F times its "
      "share, with F at least 1",
      text));
}

void check_rank(const RecordOptions& options, const char* flag, int rank) {
  const int size = options.world_size.value_or(1 << 30);
  if (rank >= 0 && rank < size) return;
  if (rank < 0) throw std::invalid_argument(fmt::format("{} {}: give 0 or more", flag, rank));
  throw std::invalid_argument(
      fmt::format("{} {}: a world of {} has ranks 0 to {}; give one of these, or another --world",
                  flag, rank, size, size - 1));
}

void check_world(const RecordOptions& options) {
  if (options.world_size && *options.world_size < 1) {
    throw std::invalid_argument(fmt::format("--world {}: give 1 or more", *options.world_size));
  }
  if (options.rank) check_rank(options, "--rank", *options.rank);
  if (!options.ranks) return;
  if (options.rank) {
    throw std::invalid_argument("--ranks and --rank: both say which ranks run; give one of them");
  }
  for (const int rank : options.ranks->listed) check_rank(options, "--ranks", rank);
}

}  // namespace

std::string RecordOptions::device_name() const {
  return is_attached() ? std::string(kCuda) : fmt::format("{}{}", kNullDevice, device.gpu);
}

int RecordOptions::gpus() const {
  if (gpus_per_node) return *gpus_per_node;
  int gpus = std::min(world_size.value_or(1), kUsualGpusPerNode);
  while (world_size.value_or(1) % gpus != 0) --gpus;
  return gpus;
}

void pull_machine_levers(RecordOptions& options) {
  for (const Lever& lever : options.levers) {
    if (lever.name == "gpu") options.device = {.kind = DeviceKind::null, .gpu = lever.value};
    if (lever.name != "world") continue;
    int size = 0;
    std::from_chars(lever.value.data(), lever.value.data() + lever.value.size(), size);
    options.world_size = size;
  }
  check_world(options);
  check_nodes(options);
}

RecordOptions parse_record_options(const Words& arguments) {
  RecordOptions options;
  const auto dashes = std::ranges::find(arguments, "--");
  Words flags(arguments.begin(), dashes);
  if (dashes != arguments.end()) options.command.assign(dashes + 1, arguments.end());
  CLI::App app;
  app.set_help_flag();
  std::string device(kCuda), capacity, beside, ranks, routing, init, with, lengths, fail_on;
  app.add_flag("--help,-h", options.help);
  app.add_option("--device", device);
  app.add_option("--capacity", capacity);
  app.add_option("--beside", beside);
  app.add_option("--world", options.world_size);
  app.add_option("--rank", options.rank);
  app.add_option("--ranks", ranks);
  app.add_option("--gpus-per-node", options.gpus_per_node)->check(CLI::Range(1, kMaxNullGpus));
  app.add_option("--gpu-index", options.gpu_index)->check(CLI::Range(0, kMaxNullGpus - 1));
  app.add_option("--steps", options.steps)->check(positive_number());
  app.add_option("--timeout", options.timeout_s)->check(positive_number());
  app.add_option("--routing", routing);
  app.add_option("--init", init);
  app.add_option("--true", options.true_at)->allow_extra_args(false);
  app.add_option("--with", with);
  app.add_option("--lengths", lengths);
  app.add_flag("--levers", options.lists_levers);
  app.add_flag("--find-levers", options.looks);
  app.add_flag("--time", options.traces_work);
  app.add_option("--calibration", options.calibration);
  app.add_option("--out", options.out);
  app.add_option("--fail-on", fail_on);
  app.add_flag("--holders", options.finds_holders);
  try {
    std::ranges::reverse(flags);  // CLI11 takes the last argument first
    app.parse(flags);
  } catch (const CLI::ParseError& error) {
    throw std::invalid_argument(
        fmt::format("{}; the command comes after --, see --help", error.what()));
  }
  if (!lengths.empty()) with += fmt::format("{}lengths={}", with.empty() ? "" : ",", lengths);
  if (options.help || options.lists_levers) return options;
  if (options.command.empty()) {
    throw std::invalid_argument("no command; give it after --, such as -- python train.py");
  }
  options.device = parse_device(device, capacity);
  if (options.is_attached()) {
    expect_no_simulation(options, {{"--capacity", !capacity.empty()},
                                   {"--beside", !beside.empty()},
                                   {"--ranks", !ranks.empty()},
                                   {"--routing", !routing.empty()},
                                   {"--init", !init.empty()},
                                   {lengths.empty() ? "--with" : "--lengths", !with.empty()}});
  }
  check_gpu_index(options);
  if (!options.calibration.empty()) options.traces_work = true;
  options.may_grow = !parse_fail_on(fail_on);
  options.beside_bytes = parse_beside(beside);
  options.draws_weights = parse_init(init);
  if (!routing.empty()) options.routing = parse_routing(routing);
  if (!ranks.empty()) options.ranks = parse_ranks(ranks);
  if (!with.empty()) options.levers = parse_levers(with);
  check_gpu_lever(options, !capacity.empty());
  pull_machine_levers(options);
  check_places(options.true_at);
  if (options.out.empty()) options.out = default_folder(options.command);
  return options;
}

std::string record_help() {
  return "usage: shardlens record [flags] -- COMMAND ...\n\n"
         "Records the memory of an unmodified PyTorch program: on the GPUs of this machine, with\n"
         "all of its ranks, or, without a GPU, as one rank on a simulated GPU. There memory is\n"
         "exact, but values are not: what only a GPU would compute is zero.\n\n"
         "  --device D         cuda, or a simulated GPU: null:h100, null:a100-80; default: cuda\n"
         "  --steps N          end the program after N optimizer steps\n"
         "  --timeout S        interrupt the program after S seconds\n"
         "  --fail-on growth   exit code 1 if the program grows from step to step, though it fits\n"
         "  --holders          name the variables that hold what a growing program keeps; takes\n"
         "                     0.1 s after each of steps 2, 4, 8 and so on\n"
         "  --gpu-index K      of a process that uses several GPUs, record GPU K; default: the\n"
         "                     first that it allocates on\n"
         "  --out DIR          where to put profiles/rankR.slp; default: runs/SCRIPT-TIME\n\n"
         "for a simulated GPU\n"
         "  --capacity BYTES   its memory, if not that of the real GPU, such as 141GB\n"
         "  --beside SIZE      what CUDA, NCCL and others take beside PyTorch, such as 700MiB, if\n"
         "                     you know better than the estimate; 0: nothing\n"
         "  --world W          number of ranks, of which only one runs\n"
         "  --rank R           the rank that runs; default: 0\n"
         "  --ranks WHICH      run several ranks, one process each, and find the one that takes\n"
         "                     most memory: all, 0,3, or roles (one of each kind that differs)\n"
         "  --gpus-per-node N  ranks of a node; default: the largest divisor of W up to 8; "
         "without\n"
         "                     --world, the number of GPUs that the program's process sees\n"
         "  --routing HOW      how tokens choose experts if their scores are unknown: balanced\n"
         "                     (default), skewed:F, where the busiest expert gets F times its\n"
         "                     share, or worst: this rank's experts get all tokens\n"
         "  --init HOW         random values of weights on the host: skip (default) draws only\n"
         "                     those that the program reads there, keep draws all\n"
         "  --true FILE:LINE   if the program branches there on a tensor whose value is unknown,\n"
         "                     it is True, not False; a number that it reads there is 1, not 0;\n"
         "                     FILE:LINE:N starts at the Nth time; may be repeated\n"
         "  --with LEVERS      change the program from outside, as an edit would: recompute,\n"
         "                     offload, optimizer=fused, ...; several are separated by commas\n"
         "  --find-levers      also find out which levers apply, for shardlens view\n"
         "  --lengths WHICH    let the longest batches of the program's DataLoader come first:\n"
         "                     longest:N, one with N tokens per sequence; drawn:SEED, its own, as\n"
         "                     drawn with that seed; or a FILE with the length of each sample\n"
         "  --time             also record kernels, copies and collectives, and predict how long\n"
         "                     a step takes; shardlens profile work and time show them\n"
         "  --calibration FILE as --time, with times that shardlens calibrate measured on the GPU\n"
         "  --levers           list all levers and what each does, and record nothing\n\n"
         "If the command uses torchrun or torch.multiprocessing.spawn, they set the world size.\n\n"
         "Exit code: 0 if the program fits the GPU, 3 if it does not (also if memory ran out,\n"
         "however the program ended), 4 if it fits only with allocator retries, 5 if nothing was\n"
         "recorded, or the recording is incomplete; if the program failed, its own exit code, or\n"
         "128 plus the signal that ended it; 2 for wrong use.\n";
}

}  // namespace shardlens::profiler
