// The scratch memory that PyTorch lends to cuBLAS and cuBLASLt for products on a GPU.
//
// [Note: workspaces] What they need beside operands and result PyTorch takes from its own
// allocator. Which of the two libraries multiplies decides how much: cuBLASLt, which takes a
// product with its bias at once, gets 1 MiB, cuBLAS, which takes every other, 8.125 or 32 MiB. How
// long PyTorch keeps it depends on its version (BlasWorkspaces in models/torch_rules.h). Where
// threads keep theirs, backward of a Python program has another one, since autograd runs it on a
// thread of its own.
#pragma once

#include <cstdint>

#include "planner/meta/tensor.h"

namespace shardlens::planner::meta {

enum class BlasLibrary : uint8_t { cublas, cublas_lt };

/// Takes what a product needs while it runs, and gives it back where PyTorch does. The CPU has
/// nothing like it.
void take_blas_workspace(Context& context, BlasLibrary library);

}  // namespace shardlens::planner::meta
