// The memory that oneDNN takes for a product of matrices in reduced precision on the CPU.
#pragma once

#include "planner/simulate/meta/tensor.h"

namespace shardlens::planner::meta {

/// The sizes of a product [rows, inner] x [inner, columns].
struct ProductSizes {
  int64_t rows = 0, inner = 0, columns = 0;
  bool transposed = false;  // the first matrix lies column by column
};

/// Returns the most bytes that the product holds besides its result while it runs. oneDNN cuts up
/// matrices by its own rules for each processor; this is at least what any of them took.
/// Returns 0 in fp32, on GPUs, and where LibTorch does not ask oneDNN.
int64_t product_scratch_bytes(const Context& context, Type type, const ProductSizes& sizes);

/// Takes that memory and frees it at once.
void take_product_scratch(Context& context, Type type, const ProductSizes& sizes);

}  // namespace shardlens::planner::meta
