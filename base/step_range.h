// Names steps of a run, as --profile 3:5 does.
#pragma once

#include <cstdint>

namespace shardlens {

/// A range of training steps, both ends included. The first step of a run is 1: that of a step
/// event with value 0.
struct StepRange {
  int64_t first = 1;
  int64_t last = 1;

  bool operator==(const StepRange&) const = default;
};

}  // namespace shardlens
