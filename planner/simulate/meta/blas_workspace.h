// The scratch memory that PyTorch lends to cuBLAS and cuBLASLt for products on a GPU.
//
// [Note: workspaces] PyTorch takes the memory that these libraries need beside operands and result
// from its own allocator. How much depends on the library that multiplies: cuBLASLt, which takes a
// product with its bias at once, gets 1 MiB; cuBLAS, which takes all others, gets 8.125 or 32 MiB.
// How long PyTorch keeps it depends on its version (BlasWorkspaces in models/torch_rules.h). In
// versions whose threads keep theirs, backward of a Python program has a second one, since autograd
// runs it on a thread of its own.
#pragma once

#include <cstdint>

#include "planner/simulate/meta/tensor.h"

namespace shardlens::planner::meta {

enum class BlasLibrary : uint8_t { cublas, cublas_lt };

/// Takes the workspace of a product, and releases it when PyTorch does. Does nothing on the
/// CPU, which needs no workspace.
void take_blas_workspace(Context& context, BlasLibrary library);

}  // namespace shardlens::planner::meta
