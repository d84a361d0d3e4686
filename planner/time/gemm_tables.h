// The measured times of matrix products that planner/time/products.h interpolates.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace shardlens::planner {

/// The times of bf16 products on one GPU, by rows (m), columns (n) and depth (k).
struct GemmTable {
  std::string_view gpu;  // of base/gpus.h, or one that only serves for others
  std::span<const int> rows;
  std::span<const int> sides;  // of n and of k
  std::string_view times;

  /// Returns the binary logarithm of the seconds at a point of the grid, given by its indices.
  double log2_seconds(size_t row, size_t column, size_t depth) const;
};

std::span<const GemmTable> gemm_tables();

}  // namespace shardlens::planner
