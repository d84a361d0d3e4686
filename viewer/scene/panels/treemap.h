// Makes a treemap: a box cut into boxes whose areas are in proportion to values, each as square as
// it can be.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "viewer/paint/picture.h"

namespace shardlens::viewer {

/// Returns one box for each value, in their order; together they cover `box`. Values must be
/// positive and must not rise.
std::vector<Box> treemap(const Box& box, std::span<const int64_t> values);

}  // namespace shardlens::viewer
