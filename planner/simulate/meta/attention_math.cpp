// Attention without a kernel of its own: _scaled_dot_product_attention_math of LibTorch's
// transformers/attention.cpp, one operator after another, each with its own node.
#include <utility>

#include "planner/simulate/meta/attention_kernels.h"
#include "planner/simulate/meta/blas_workspace.h"
#include "planner/simulate/meta/composite_norm.h"
#include "planner/simulate/meta/operators.h"

namespace shardlens::planner::meta {

namespace {

Tensor scaled(const Tensor& input) {
  return with_node(with_number(input), {&input}, {}, [](Node&, Tensors&& gradients) -> Tensors {
    return {with_number(gradients[0])};
  });
}

/// Takes the memory of products [n, a, b] x [n, b, c] -> `sizes`, outside a graph.
Tensor products(Context& context, const Sizes& sizes, Type type) {
  Tensor result = Tensor::empty(context, sizes, type);
  take_blas_workspace(context, BlasLibrary::cublas);
  return result;
}

/// Multiplies [n, a, b] x [n, b, c] -> [n, a, c].
Tensor batch_product(const Tensor& a, const Tensor& b) {
  Tensor product = products(a.context(), {a.size(0), a.size(1), b.size(2)}, a.scalar_type());
  return with_node(std::move(product), {&a, &b}, {b, a}, [](Node& self, Tensors&&) -> Tensors {
    const Tensor &right = self.saved[0], &left = self.saved[1];
    const auto gradient_of = [](const Tensor& input) {
      return products(input.context(), input.sizes(), input.scalar_type());
    };
    Tensor right_gradient = self.wants(1) ? gradient_of(right) : Tensor();
    return {self.wants(0) ? gradient_of(left) : Tensor(), right_gradient};
  });
}

/// Multiplies [B, H, a, b] x [B, H, b, c] -> [B, H, a, c].
Tensor matrix_product(const Tensor& a, const Tensor& b) {
  const int64_t batch = a.size(0), heads = a.size(1), rows = a.size(2), columns = b.size(3);
  const Tensor left = a.reshape({batch * heads, rows, a.size(3)});
  const Tensor right = b.reshape({batch * heads, b.size(2), columns});
  return batch_product(left, right).view({batch, heads, rows, columns});
}

/// Models _safe_softmax: rows in which everything is masked become zeros.
Tensor safe_softmax(const Tensor& scores) {
  Context& context = scores.context();
  const Tensor output = empty_like(scores);
  {
    Sizes rows = scores.sizes();
    rows[rows.size() - 1] = 1;
    const Holder is_masked(empty_like(scores, Type::boolean));
    const Holder is_masked_row(Tensor::empty(context, rows, Type::boolean));
    const Holder zero(Tensor::empty(context, {1}, scores.scalar_type()));
  }
  return with_node(output, {&scores}, {output}, [](Node& self, Tensors&&) -> Tensors {
    const Tensor result = empty_like(self.saved[0]);
    const Holder product(result.is_cuda() ? empty_like(result) : Tensor());
    return {result};
  });
}

/// Makes the mask [T, S] that is added to the scores.
Tensor causal_mask(Context& context, int64_t queries, int64_t keys) {
  const Sizes sizes = {queries, keys};
  Tensor ones = Tensor::empty(context, sizes, Type::boolean);
  const Holder is_seen(empty_like(ones));
  ones = {};
  const Holder hidden(Tensor::empty(context, {1}, Type::fp32));
  const Holder seen(Tensor::empty(context, {1}, Type::fp32));
  return Tensor::empty(context, sizes, Type::fp32);
}

}  // namespace

Tensor math_attention(const Tensor& given_query, const Tensor& given_key, const Tensor& given_value,
                      const AttentionOptions& options) {
  const Type type = given_query.scalar_type();
  Tensor weights;  // which LibTorch returns too
  const Tensor wide_query = given_query.to(Type::fp32), wide_key = given_key.to(Type::fp32),
               wide_value = given_value.to(Type::fp32);
  Tensor mask;
  const Tensor query = scaled(wide_query);
  if (options.causal) mask = causal_mask(query.context(), query.size(2), wide_key.size(2));
  const int64_t groups = query.size(1) / wide_key.size(1);
  const auto repeat_heads = [&](const Tensor& input) {
    return groups == 1 ? input : repeat_interleave(input, groups, 1);
  };
  Tensor value;  // made after the key, and released after it
  const Tensor key = repeat_heads(wide_key);
  value = repeat_heads(wide_value);
  Tensor scores = matrix_product(query, scaled(key.transpose(2, 3)));
  scores = safe_softmax(scores);
  weights = scores.detach().to(type);
  return matrix_product(scores, value).to(type);
}

}  // namespace shardlens::planner::meta
