// Says whether a program grows: whether each of its steps leaves blocks that no later step frees,
// by how much, and which lines made them. Advice, verdicts and reports share these facts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiler/recording/profile.h"

namespace shardlens::profiler {

/// Bytes that were made at one line and kept, with the code that called it.
struct GrowingPlace {
  std::string label = {};  // the line that made them: "train.py:9 forward"
  std::string caller =
      {};  // the line outside the model that led there, or empty: "train.py:20 step"
  Category category{};
  double bytes_per_step = 0;
  /// True if most of the bytes are made again in each step, larger: all = torch.cat([all, one]).
  bool is_replaced = false;
};

struct Growth {
  double bytes_per_step = 0;  // of all places
  /// The number of steps between two rises, if it is always the same: 16 of a program that keeps
  /// something in every 16th step.
  int64_t every = 1;
  int64_t from_step = 0;  // the first that counts, after two that settle
  int64_t last_step = 0;  // the last that was seen to grow
  /// A program without an optimizer has rounds in place of steps: this line begins one whenever it
  /// allocates. Empty: these are steps.
  std::string round = {};
  std::vector<GrowingPlace> places = {};  // the one that grows most first; never empty
  /// The number of steps after which the GPU is full; nothing where its size is unknown.
  std::optional<int64_t> full_after_steps = {};
};

/// Returns "grows by 65.13 MiB a step from step 2 on: train.py:9 forward, called by train.py:20
/// step; full after about 1,200 steps".
std::string growth_text(const Growth& growth);

}  // namespace shardlens::profiler
