#include "profiler/recording/stack_table.h"

namespace shardlens::profiler {

uint32_t StackTable::label(const std::string& text, uint32_t innermost) {
  if (text.empty()) return 0;
  std::vector<std::string>& strings = profile_.strings;
  const auto number = static_cast<uint32_t>(strings.size());
  const auto [known, is_new] = labels_.try_emplace({text, innermost}, number);
  if (!is_new) return known->second;
  strings.push_back(text);
  profile_.stacks.of_label.resize(strings.size());
  profile_.stacks.of_label.back() = innermost;
  return number;
}

uint32_t StackTable::frame(const StackFrame& frame) {
  std::vector<StackFrame>& frames = profile_.stacks.frames;
  const std::tuple key(frame.caller, frame.file, frame.function, frame.line);
  const auto known = frames_.find(key);
  if (known != frames_.end()) return known->second;
  if (frames.size() >= kMostFrames) return 0;
  const auto number = static_cast<uint32_t>(frames.size());
  frames.push_back(frame);
  frames_.emplace(key, number);
  return number;
}

}  // namespace shardlens::profiler
