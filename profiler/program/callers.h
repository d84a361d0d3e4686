// Names the code that asked for an allocation: the caller of the model, or of the function that
// allocated.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/recording/profile.h"

namespace shardlens::profiler {

class Callers {
 public:
  /// Both must outlive it.
  Callers(const std::vector<std::string>& strings, const Stacks& stacks)
      : strings_(strings), stacks_(stacks) {}

  /// Returns the program's line that called the outermost `forward` on the label's stack, or
  /// without one the function that allocated, as "train.py:20 step". Returns "" if none is known.
  std::string caller_of(uint32_t label) const;
  /// Returns the innermost operator on the label's stack, "aten::_softmax"; "" if none is known.
  std::string operator_of(uint32_t label) const;
  /// True if a `forward` is on the label's stack.
  bool is_in_forward(uint32_t label) const;

 private:
  bool is_forward_frame(uint32_t frame) const;
  const std::string& text(uint32_t string) const;

  const std::vector<std::string>& strings_;
  const Stacks& stacks_;
};

}  // namespace shardlens::profiler
