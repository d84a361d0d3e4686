#include "runtime/record/record_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <stdexcept>
#include <string_view>

#include "planner/gpus.h"
#include "profiler/units.h"

namespace shardlens::runtime {

namespace {

using Words = std::vector<std::string>;

constexpr std::string_view kNull = "null:";

planner::Device parse_device(const std::string& text, const std::string& capacity) {
  if (!text.starts_with(kNull)) {
    throw std::invalid_argument(fmt::format(
        "--device {}: a program is recorded as on a GPU that is named; give one, such as null:h100",
        text.empty() ? "is missing" : text));
  }
  const std::string gpu = text.substr(kNull.size());
  planner::find_gpu(gpu);
  return {.kind = planner::DeviceKind::null,
          .gpu = gpu,
          .capacity_bytes = capacity.empty() ? 0 : profiler::parse_bytes(capacity)};
}

/// "runs/train-20261121-224500" of "python train.py".
std::string default_folder(const Words& command) {
  std::string name = std::filesystem::path(command.front()).stem();
  for (const std::string& word : command) {
    if (word.ends_with(".py")) name = std::filesystem::path(word).stem();
  }
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  char time[32];
  std::strftime(time, sizeof time, "%Y%m%d-%H%M%S", &local);
  return fmt::format("runs/{}-{}", name, time);
}

void check_world(const RecordOptions& options) {
  if (options.world_size && *options.world_size < 1) {
    throw std::invalid_argument(fmt::format("--world {}: give 1 or more", *options.world_size));
  }
  const int size = options.world_size.value_or(1 << 30);
  if (options.rank && (*options.rank < 0 || *options.rank >= size)) {
    throw std::invalid_argument(fmt::format("--rank {}: the ranks of a world of {} are 0 to {}",
                                            *options.rank, size, size - 1));
  }
}

}  // namespace

std::string RecordOptions::device_name() const { return fmt::format("{}{}", kNull, device.gpu); }

RecordOptions parse_record_options(const Words& arguments) {
  RecordOptions options;
  const auto dashes = std::ranges::find(arguments, "--");
  Words flags(arguments.begin(), dashes);
  if (dashes != arguments.end()) options.command.assign(dashes + 1, arguments.end());
  CLI::App app;
  app.set_help_flag();
  std::string device, capacity;
  app.add_flag("--help,-h", options.help);
  app.add_option("--device", device);
  app.add_option("--capacity", capacity);
  app.add_option("--world", options.world_size);
  app.add_option("--rank", options.rank);
  app.add_option("--steps", options.steps)->check(CLI::PositiveNumber);
  app.add_option("--timeout", options.timeout_s)->check(CLI::PositiveNumber);
  app.add_option("--out", options.out);
  try {
    std::ranges::reverse(flags);  // as CLI11 wants them
    app.parse(flags);
  } catch (const CLI::ParseError& error) {
    throw std::invalid_argument(
        fmt::format("{}; the command comes after --, see --help", error.what()));
  }
  if (options.help) return options;
  if (options.command.empty()) {
    throw std::invalid_argument("no command; give it after --, such as -- python train.py");
  }
  options.device = parse_device(device, capacity);
  check_world(options);
  if (options.out.empty()) options.out = default_folder(options.command);
  return options;
}

std::string record_help() {
  return "usage: shardlens record --device null:GPU [flags] -- COMMAND ...\n\n"
         "Records the memory of a PyTorch program that knows nothing of it, with no GPU, and says\n"
         "whether it fits one. Memory is exact, values are not: whatever it prints of them is "
         "zero.\n\n"
         "  --device null:GPU  the GPU, such as null:h100 or null:a100-80\n"
         "  --capacity BYTES   its memory, where that is to be another, such as 141GB\n"
         "  --world W          ranks, of which only one is there\n"
         "  --rank R           which one; default: 0\n"
         "  --steps N          end the program after N optimizer steps\n"
         "  --timeout S        interrupt it after S seconds\n"
         "  --out DIR          where to put profiles/rankR.slp; default: runs/SCRIPT-TIME\n\n"
         "Where the command has torchrun or calls torch.multiprocessing.spawn, they give the size\n"
         "of the world, and the one rank is run.\n\n"
         "Exit code: that of the command where it is not 0; 3 where the program does not fit the\n"
         "GPU; 4 where it fits only with allocator retries.\n";
}

}  // namespace shardlens::runtime
