// Lays out a model's parameters in groups and buckets, which decides where every parameter lies.
// Private to the planner; the schedule builders call it, and the runtime sees only the Groups in a
// Schedule.
//
// The order in a group is that in which backward finishes gradients: units backwards, within a unit
// its modules backwards, within a module its parameters as they are (weight, bias of the last
// layer, then of the one before it, ...). A parameter that several units use is placed by the first
// of them, because only there its gradient is complete. A bucket is of one dtype, all
// frozen or none, all whole or none. The places where buckets are cut depend only on the model and
// these properties, never on the number of shards: only the padding at a bucket's end depends on
// that.
#pragma once

#include <cstdint>
#include <vector>

#include "models/spec.h"
#include "planner/schedule/schedule.h"

namespace shardlens::planner {

/// Limits of what a schedule may hold, far above any model, so that no count of bytes overflows.
constexpr int kMaxWorldSize = 1 << 20;
constexpr int64_t kMaxNumel = int64_t{1} << 40;  // of one bucket

/// The group, buckets and block of one unit. A unit without parameters has group -1 and no buckets.
struct UnitLayout {
  int group = -1;
  std::vector<int> buckets;  // that its gradients go to, in the order in which they come
  int block = -1;            // see blocks_of_units; -1: none
};

struct Layout {
  std::vector<Group> groups;  // in order of first use
  std::vector<UnitLayout> units;
  int64_t block_numel = 0;  // of the largest group that is neither the first nor the last unit's,
                            // with padding; the prefetch ring holds no more
};

/// Lays a model's parameters out in groups and buckets. Throws std::invalid_argument if an option
/// does not fit the model, or if no unit uses some parameter.
Layout make_layout(const models::ModelSpec& spec, const Strategy& strategy);

}  // namespace shardlens::planner
