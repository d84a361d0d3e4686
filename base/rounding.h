// Rounds integers up, as kernels do to cut their work.
#pragma once

#include <cstdint>

namespace shardlens::planner::meta {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t round_up(int64_t a, int64_t multiple) { return ceil_div(a, multiple) * multiple; }

}  // namespace shardlens::planner::meta
