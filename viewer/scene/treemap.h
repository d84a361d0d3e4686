// A treemap: a box cut into boxes whose areas are as the values are, each as square as it can be.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "viewer/scene/picture.h"

namespace shardlens::viewer {

/// One box a value, in their order; values fall and are positive. Together they cover `box`.
std::vector<Box> treemap(const Box& box, std::span<const int64_t> values);

}  // namespace shardlens::viewer
