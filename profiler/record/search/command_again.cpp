#include "profiler/record/search/command_again.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "base/gpus.h"

namespace shardlens::profiler {

namespace {

std::string shell_word(const std::string& word) {
  const bool is_plain = !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("-_./:=,+@%").find(char(c)) != std::string::npos;
  });
  if (is_plain) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace

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
