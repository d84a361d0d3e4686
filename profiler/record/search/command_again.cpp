#include "profiler/record/search/command_again.h"

#include <fmt/format.h>

#include "base/gpus.h"
#include "base/process/command_line.h"

namespace shardlens::profiler {

namespace {

std::string routing_text(const Routing& routing) {
  if (routing.kind == Routing::Kind::worst) return "worst";
  return fmt::format("skewed:{}", routing.factor);
}

}  // namespace

std::vector<std::string> flags_again(const RecordOptions& options, int64_t memory_bytes) {
  std::vector<std::string> flags = {"--device", options.device_name()};
  const auto add = [&](const char* flag, const auto& value) {
    if (value) flags.insert(flags.end(), {flag, fmt::format("{}", *value)});
  };
  const bool is_usual =
      options.is_attached() || memory_bytes == find_gpu(options.device.gpu).memory_bytes;
  add("--capacity", is_usual ? std::nullopt : std::optional(memory_bytes));
  add("--beside", options.beside_bytes);
  add("--world", options.world_size);
  add("--rank", options.rank);
  add("--gpus-per-node", options.gpus_per_node);
  add("--gpu-index", options.gpu_index);
  add("--steps", options.steps);
  if (options.routing.kind != Routing::Kind::balanced) {
    flags.insert(flags.end(), {"--routing", routing_text(options.routing)});
  }
  if (options.draws_weights) flags.insert(flags.end(), {"--init", "keep"});
  for (const std::string& place : options.true_at) {
    flags.insert(flags.end(), {"--true", place});
  }
  return flags;
}

std::string command_again(const RecordOptions& options, int64_t fit_bytes) {
  std::string text = "shardlens record";
  for (const std::string& word : flags_again(options, fit_bytes)) text += " " + shell_word(word);
  if (!options.levers.empty()) text += " --with " + levers_text(options.levers);
  text += " --";
  for (const std::string& word : options.command) text += " " + shell_word(word);
  return text;
}

}  // namespace shardlens::profiler
