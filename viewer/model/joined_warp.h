// Lays a plan over a measured lane: action over action, step over step.
#pragma once

#include <optional>
#include <vector>

#include "viewer/model/lane.h"
#include "viewer/model/warp.h"

namespace shardlens::viewer {

/// Maps x to a plan that is drawn over a measured lane of the same schedule, so that every action
/// of the plan lies where the lane's action of that number does. A step of the lane beyond the
/// plan's last lies on the plan's last step, since from the third step on all are the same. Each
/// warp is a stretch of x in which the plan is continuous; between two of them the plan jumps back,
/// skips something, or has a gap.
using JoinedWarp = std::vector<Warp>;
JoinedWarp joined_warp(const Warp& measured_warp, const Lane& measured, const Lane& plan);

/// Returns the plan's columns, as columns_of does.
std::vector<std::optional<Extent>> joined_columns(const JoinedWarp& warp, const Lane& plan,
                                                  const Range& x, int count);

}  // namespace shardlens::viewer
