// Gives the texts and stacks of a recording their numbers, the same one for the same text or stack.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "profiler/recording/profile.h"

namespace shardlens::profiler {

/// Adds strings, labels and frames to a recording, each once: [Note: stacks] in profile.h.
class StackTable {
 public:
  static constexpr size_t kMostFrames = size_t{1} << 20;

  /// The recording must outlive it, and get no other labels or frames meanwhile.
  explicit StackTable(Profile& profile) : profile_(profile) {}

  /// Returns the label of a text with a stack, or the number of a text without one; 0 for
  /// the empty text.
  uint32_t label(const std::string& text, uint32_t innermost = 0);
  /// Returns the number of a frame; 0 if the recording has too many of them.
  uint32_t frame(const StackFrame& frame);

 private:
  Profile& profile_;
  std::map<std::pair<std::string, uint32_t>, uint32_t> labels_;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>, uint32_t> frames_;
};

}  // namespace shardlens::profiler
