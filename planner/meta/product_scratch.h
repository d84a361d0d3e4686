// What oneDNN takes for a product of matrices in reduced precision on the CPU.
#pragma once

#include "planner/meta/tensor.h"

namespace shardlens::planner::meta {

/// [rows, inner] x [inner, columns]
struct ProductSizes {
  int64_t rows = 0, inner = 0, columns = 0;
  bool transposed = false;  // the first matrix lies column by column
};

/// What the product holds beside its result while it runs, at most: oneDNN cuts matrices up by
/// rules of its own for each processor, and this is no less than any of them took. Nothing in fp32,
/// on GPUs, and where LibTorch does not ask oneDNN.
int64_t product_scratch_bytes(const Context& context, Type type, const ProductSizes& sizes);

/// Takes it and gives it back.
void take_product_scratch(Context& context, Type type, const ProductSizes& sizes);

}  // namespace shardlens::planner::meta
