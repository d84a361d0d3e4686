// Rounds integers up, as allocators and kernels do: to a block, a page, a tile.
#pragma once

#include <cstdint>

namespace shardlens {

/// Returns a / b, rounded up; both are at least 0, b is not 0.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
/// Returns the smallest multiple of `multiple` that is not below `a`.
constexpr int64_t round_up(int64_t a, int64_t multiple) { return ceil_div(a, multiple) * multiple; }

}  // namespace shardlens
