// Makes a treemap: divides a box into boxes with areas in proportion to values, each as square as
// possible.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "viewer/paint/picture.h"

namespace shardlens::viewer {

/// Returns one box for each value, in the same order; together they cover `box`. Values must be
/// positive and must not rise.
std::vector<Box> treemap(const Box& box, std::span<const int64_t> values);

}  // namespace shardlens::viewer
