// What LibTorch's operators allocate, keep for backward and free, in which order: the table behind
// every prediction. Each operator that a model uses stands here under LibTorch's name; its backward
// is the one that LibTorch's generated code has, or that of our own autograd nodes in models/.
//
// tests/runtime/null_device/operators_test.cpp runs each on LibTorch's real CUDA code beside this
// and compares every allocation; tests/runtime/operators_test.cpp does so on the CPU.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "planner/meta/autograd.h"
#include "planner/meta/blas_workspace.h"
#include "planner/meta/tensor.h"

namespace shardlens::planner::meta {

/// Newly allocated, laid out as `tensor`.
Tensor like(const Tensor& tensor, Type type);
inline Tensor like(const Tensor& tensor) { return like(tensor, tensor.scalar_type()); }

// ---- element by element -------------------------------------------------------------------------

/// The result of any operator that takes nothing else, outside a graph.
Tensor pointwise(Context& context, const Sizes& sizes, Type type);
Tensor add(const Tensor& a, const Tensor& b);
inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
/// A number among an operator's operands: the CPU makes a tensor of it, in its own dtype and then
/// in that of the others.
struct Number {
  Number(Context& context, Type type);
  Tensor own;
  Tensor cast;
};
/// The result of an operator on a tensor and a number, outside a graph.
Tensor with_number(Context& context, const Sizes& sizes, Type type);
/// Such an operator in place.
void in_place_with_number(Context& context, Type type);
/// A tensor of `type` beside a number: booleans.
Tensor compared_with_number(Context& context, const Sizes& sizes, Type type);
/// A number to the power of a tensor, outside a graph: the number comes to the device first.
Tensor power(const Tensor& exponents);
Tensor gelu(const Tensor& input);
Tensor relu(const Tensor& input);

// ---- moving -------------------------------------------------------------------------------------

Tensor cat(const Tensors& parts, int64_t dim);
/// Along a new dimension; undefined parts are zeros of the others' shape.
Tensor stack(const Tensors& parts, int64_t dim);
/// What backward of narrow and select makes: zeros in which the gradient stands.
Tensor embed_in_zeros(const Tensor& gradient, const Sizes& sizes);

// ---- reductions ---------------------------------------------------------------------------------

/// Over some dimensions, which stay with size 1. `type`: of the result.
Tensor sum(const Tensor& input, const std::vector<int64_t>& dims, Type type);
/// Sums over what was broadcast; the tensor itself where nothing was.
Tensor sum_to(const Tensor& gradient, const Sizes& sizes);

// ---- BLAS ---------------------------------------------------------------------------------------

/// [n, k] x [k, m] -> [n, m], outside a graph.
Tensor blas_product(const Tensor& a, const Tensor& b, BlasLibrary library = BlasLibrary::cublas);
/// The library that multiplies input [..., k] by weight [m, k] where a bias is added.
BlasLibrary library_with_bias(const Tensor& input, const Tensor& weight);

// ---- layers -------------------------------------------------------------------------------------

/// Whether a product's input is given up to its gradient: models::linear_spending.
enum class InputUse : uint8_t { kept, spent };

/// input [..., in] x weight [out, in] + bias [out]; as models::linear.
Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias,
              InputUse use = InputUse::kept);
/// The same without a bias; as models::project.
Tensor project(const Tensor& input, const Tensor& weight, InputUse use = InputUse::kept);

/// Over the last dimension; all of one dtype.
Tensor layer_norm(const Tensor& input, const Tensor& weight, const Tensor& bias);
Tensor rms_norm(const Tensor& input, const Tensor& weight);

/// ids [B, T] and weight [vocab, D] -> [B, T, D]
Tensor embedding(const Tensor& weight, const Tensor& ids);

}  // namespace shardlens::planner::meta
