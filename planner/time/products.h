// How long products of matrices take. A GPU of gemm_tables.h has measured times, which are
// interpolated; any other has those of a GPU like it, scaled by what a model of tiles and waves
// says of both.
//
// The tables hold bf16. fp16 takes as long. tf32 runs at half the rate on numbers twice as large,
// so a product of depth k takes as long as bf16's of depth 2 k; fp8 as that of k / 2. fp32 without
// tensor cores, and bf16 where a GPU has none, take what the model says, at the rate that
// planner/time/rates.h has. A batch of products counts as one with as many rows, and reads the
// other operand of each.
#pragma once

#include "base/gpus.h"
#include "profiler/recording/work.h"

namespace shardlens::planner {

/// Returns the seconds of a product on a GPU.
double product_seconds(const Gpu& gpu, const profiler::Product& product);

/// Returns the seconds of a product within a training step. A step keeps the GPU at its power limit
/// and its caches full of other things, where a benchmark repeats one product: by 20 % longer on
/// tensor cores, from the steps of llm-foundry on A100 of 40 GB, with which nothing is tested.
double product_seconds_in_step(const Gpu& gpu, const profiler::Product& product);

/// Returns how many floating-point operations it is.
double product_flops(const profiler::Product& product);

/// Returns the seconds of a bf16 product by the times that were measured on another GPU, which has
/// a table.
double scaled_product_seconds(const Gpu& gpu, const Gpu& measured,
                              const profiler::Product& product);

/// True if the times of products on the GPU are measured, not those of another one.
bool has_measured_products(const Gpu& gpu);

}  // namespace shardlens::planner
