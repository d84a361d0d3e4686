// Where every parameter lies: a model's parameters laid out in groups and buckets. Private to the
// planner; the schedule builders call it, and the runtime sees only the Groups in a Schedule.
//
// The order in a group is that in which backward finishes gradients: units backwards, within a
// unit its parameters backwards (bias, weight of the last layer, then of the one before it, ...).
// A parameter that several units use stands where the first of them puts it, because only there
// its gradient is complete. Where buckets are cut depends on the model alone, never on the number
// of shards: only the padding at a bucket's end does.
#pragma once

#include <cstdint>
#include <vector>

#include "models/spec.h"
#include "planner/schedule.h"

namespace shardlens::planner {

/// Bounds of what a schedule may hold, far above any model, so that no count of bytes overflows.
constexpr int kMaxWorldSize = 1 << 20;
constexpr int64_t kMaxNumel = int64_t{1} << 40;  // of one bucket

/// What one unit uses. A unit without parameters has group -1 and no buckets.
struct UnitLayout {
  int group = -1;
  std::vector<int> buckets;  // rising; those that its gradients go to
};

struct Layout {
  std::vector<Group> groups;  // in order of first use
  std::vector<UnitLayout> units;
  int64_t block_numel = 0;  // of the largest block, with padding; the prefetch ring holds no more
};

int64_t round_up(int64_t value, int64_t multiple);

/// `shards` >= 1; `dtype` is that of unsharded parameters. Throws std::invalid_argument where a
/// unit uses parameters of two groups or a parameter is used by no unit.
Layout make_layout(const models::ModelSpec& spec, int shards, DType dtype);

}  // namespace shardlens::planner
