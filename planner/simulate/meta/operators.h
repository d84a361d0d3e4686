// The memory that LibTorch's operators allocate, keep for backward and free, and in which order:
// the table behind every prediction. Each operator that a model uses is here under LibTorch's
// name; its backward is the one that LibTorch's generated code has, or that of our own autograd
// nodes in models/.
//
// tests/profiler/null_device/operators_test.cpp runs each on LibTorch's real CUDA code beside this
// and compares every allocation; tests/planner/simulate/operators_test.cpp does so on the CPU.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "models/spec.h"
#include "planner/simulate/meta/autograd.h"
#include "planner/simulate/meta/blas_workspace.h"
#include "planner/simulate/meta/tensor.h"

namespace shardlens::planner::meta {

/// Returns a newly allocated tensor with the layout of `tensor`.
Tensor empty_like(const Tensor& tensor, Type type);
inline Tensor empty_like(const Tensor& tensor) { return empty_like(tensor, tensor.scalar_type()); }

// ---- element by element -------------------------------------------------------------------------

/// Returns the result of any operator that takes no other memory, outside a graph.
Tensor pointwise(Context& context, const Sizes& sizes, Type type);
/// Takes the memory of a tensor that nobody keeps, and releases it.
void take_and_release(Context& context, const Sizes& sizes, Type type);
Tensor add(const Tensor& a, const Tensor& b);
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
/// A number among an operator's operands: the CPU turns the number into a tensor, in its own dtype
/// and then in that of the other operands.
struct Number {
  Number(Context& context, Type type);
  Tensor own;
  Tensor cast;
};
/// Returns the result of an operator on a tensor and a number, outside a graph.
Tensor with_number(Context& context, const Sizes& sizes, Type type);
Tensor operator*(const Tensor& a, double number);
Tensor operator+(const Tensor& a, double number);
Tensor operator/(const Tensor& a, double number);
Tensor operator/(double number, const Tensor& b);
Tensor operator/(const Tensor& a, const Tensor& b);
/// Runs an operator on a tensor and a number in place.
void in_place_with_number(Context& context, Type type);
/// Compares a tensor of `type` with a number and returns booleans.
Tensor compared_with_number(Context& context, const Sizes& sizes, Type type);
/// Returns a number to the power of a tensor, outside a graph. The number is copied to the device
/// first.
Tensor power(const Tensor& exponents);
Tensor gelu(const Tensor& input);
Tensor relu(const Tensor& input);

// ---- moving -------------------------------------------------------------------------------------

Tensor cat(const Tensors& parts, int64_t dim);
/// Stacks `parts` along a new dimension; undefined parts are zeros of the others' shape.
Tensor stack(const Tensors& parts, int64_t dim);
/// Returns the gradient that backward of narrow and select makes: zeros with the given gradient in
/// place.
Tensor embed_in_zeros(const Tensor& gradient, const Sizes& sizes);

// ---- reductions ---------------------------------------------------------------------------------

/// Sums over `dims`, which stay with size 1. `type` is the result's.
Tensor sum(const Tensor& input, const std::vector<int64_t>& dims, Type type);
/// Sums over the dimensions that were broadcast; returns the tensor itself if none was.
Tensor sum_to(const Tensor& gradient, const Sizes& sizes);

// ---- BLAS ---------------------------------------------------------------------------------------

/// Multiplies [n, k] x [k, m] -> [n, m], outside a graph.
Tensor blas_product(const Tensor& a, const Tensor& b, BlasLibrary library = BlasLibrary::cublas);
/// Returns the library that multiplies input [..., k] by weight [m, k] when a bias is added.
BlasLibrary library_with_bias(const Tensor& input, const Tensor& weight);

// ---- layers -------------------------------------------------------------------------------------

using models::InputUse;

/// Computes input [..., in] x weight [out, in] + bias [out], as models::linear does.
Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias,
              InputUse use = InputUse::kept);
/// Computes the same without a bias, as models::project does.
Tensor project(const Tensor& input, const Tensor& weight, InputUse use = InputUse::kept);

/// Normalises over the last dimension; all tensors have one dtype.
Tensor layer_norm(const Tensor& input, const Tensor& weight, const Tensor& bias);
Tensor rms_norm(const Tensor& input, const Tensor& weight);

/// Looks up ids [B, T] in weight [vocab, D] -> [B, T, D].
Tensor embedding(const Tensor& weight, const Tensor& ids);

}  // namespace shardlens::planner::meta
