#include "profiler/record/search/command_again.h"

#include <fmt/format.h>

#include "base/gpus.h"
#include "base/process/command_line.h"

namespace shardlens::profiler {

std::string command_again(const RecordOptions& options, int64_t fit_bytes) {
  std::string text = fmt::format("shardlens record --device {}", options.device_name());
  if (fit_bytes != find_gpu(options.device.gpu).memory_bytes) {
    text += fmt::format(" --capacity {}", fit_bytes);
  }
  if (options.beside_bytes) text += fmt::format(" --beside {}", *options.beside_bytes);
  if (options.world_size) text += fmt::format(" --world {}", *options.world_size);
  if (options.rank) text += fmt::format(" --rank {}", *options.rank);
  if (options.gpus_per_node) text += fmt::format(" --gpus-per-node {}", *options.gpus_per_node);
  if (options.steps) text += fmt::format(" --steps {}", *options.steps);
  for (const std::string& place : options.true_at) text += " --true " + shell_word(place);
  if (!options.levers.empty()) text += " --with " + levers_text(options.levers);
  text += " --";
  for (const std::string& word : options.command) text += " " + shell_word(word);
  return text;
}

}  // namespace shardlens::profiler
