// Flash attention 2 on CUDA: LibTorch's transformers/cuda/flash_attn/flash_api.cpp.
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/units.h"
#include "planner/simulate/meta/attention_kernels.h"
#include "planner/simulate/meta/operators.h"

namespace shardlens::planner::meta {

namespace {

// The tensors that the node keeps, in the order in which it releases them.
enum SavedIndex : size_t { kKey, kQuery, kValue, kLogSumExp, kOutput, kRandom, kRandomUnused };

/// Returns the head width that the kernels' tiles have.
int64_t tile_width(int64_t head_width) { return round_up(head_width, head_width <= 128 ? 32 : 64); }

/// Returns the number of pieces into which keys are cut, so that few heads and queries fill the
/// GPU: num_splits_heuristic in flash_api.cpp, in its arithmetic.
int64_t splits(int64_t blocks, int64_t processors, int64_t key_blocks) {
  constexpr int64_t kMost = 128;
  if (static_cast<float>(blocks) >= 0.8f * static_cast<float>(processors)) return 1;
  const auto is_new = [&](int64_t n) {
    return n == 1 || ceil_div(key_blocks, n) != ceil_div(key_blocks, n - 1);
  };
  const auto efficiency = [&](int64_t n) {
    const float waves = static_cast<float>(blocks * n) / static_cast<float>(processors);
    return waves / std::ceil(waves);
  };
  const int64_t most = std::min({kMost, processors, key_blocks});
  float best = 0;
  for (int64_t n = 1; n <= most; ++n) {
    if (is_new(n)) best = std::max(best, efficiency(n));
  }
  for (int64_t n = 1; n <= most; ++n) {
    if (is_new(n) && efficiency(n) >= 0.85 * best) return n;
  }
  return 1;
}

/// Applies set_params_splitkv in flash_api.cpp. `key` and `query` are [B, T, H, E], as the kernel
/// sees them.
int64_t forward_splits(const Tensor& query, const Tensor& key) {
  const int64_t width = query.size(3);
  const int64_t block = width <= 64 ? 256 : width <= 128 ? 128 : 64;
  const int64_t blocks = query.size(0) * query.size(2) * ceil_div(query.size(1), 64);
  return splits(blocks, query.context().gpu->sm_count * 2, ceil_div(key.size(1), block));
}

/// True for a single query against fewer key heads: each group of heads is then seen as rows of one
/// head. Callers with groups are always causal, and one query sees every key.
bool swaps_groups(const Tensor& query, const Tensor& key) {
  return query.size(1) == 1 && query.size(2) > key.size(2) && query.size(3) % 8 == 0;
}

struct ForwardResult {
  Tensor output;  // [B, H, T, E]
  Tensor log_sum_exp, random, random_unused;
};

/// Models mha_fwd in flash_api.cpp.
ForwardResult run_forward(const Tensor& given_query, const Tensor& given_key) {
  Context& context = given_query.context();
  Tensor query = given_query.transpose(1, 2);
  const Tensor key = given_key.transpose(1, 2);
  const Sizes sizes = query.sizes();
  const bool swaps = swaps_groups(query, key);
  if (swaps) {
    const int64_t groups = query.size(2) / key.size(2);
    query = query.reshape({sizes[0], key.size(2), groups, sizes[3]}).transpose(1, 2);
  }
  const int64_t batch = sizes[0], tokens = query.size(1), heads = query.size(2);
  ForwardResult made;
  made.output = empty_like(query);
  made.log_sum_exp = Tensor::empty(context, {batch, heads, tokens}, Type::fp32);
  const int64_t pieces = forward_splits(query, key);
  Tensor sums, outputs;
  if (pieces > 1) {
    const int64_t width = tile_width(sizes[3]);
    sums = Tensor::empty(context, {pieces, batch, heads, tokens}, Type::fp32);
    outputs = Tensor::empty(context, {pieces, batch, heads, tokens, width}, Type::fp32);
  }
  made.random = Tensor::empty(context, {2}, Type::int64);
  made.random_unused = Tensor::empty(context, {1}, Type::int64);
  sums = {};
  outputs = {};
  if (swaps) made.output = made.output.transpose(1, 2).reshape(sizes);
  made.output = made.output.transpose(1, 2);
  return made;
}

/// Models mha_bwd in flash_api.cpp, from what the node kept.
Tensors run_backward(Node& node, const Tensor& given_gradient) {
  const auto seen = [&](size_t i) { return node.saved[i].transpose(1, 2); };
  const Tensor query = seen(kQuery), key = seen(kKey), value = seen(kValue);
  Context& context = query.context();
  const Holder gradient(given_gradient.transpose(1, 2).contiguous());
  const Holder output(seen(kOutput).contiguous());
  const int64_t batch = query.size(0), heads = query.size(2), width = query.size(3);
  const int64_t rows = round_up(query.size(1), 128);
  const Tensor query_gradient = empty_like(query), key_gradient = empty_like(key),
               value_gradient = empty_like(value);
  const Holder softmax_sums(Tensor::empty(context, {batch, heads, rows}, Type::fp32));
  const Holder sums(Tensor::empty(context, {batch, rows, heads, tile_width(width)}, Type::fp32));
  if (key.size(2) != heads) {  // summed over each group of heads afterwards
    const Sizes each = {batch, key.size(1), heads, width};
    const Holder keys(Tensor::empty(context, each, key.scalar_type()));
    const Holder values(Tensor::empty(context, each, value.scalar_type()));
  }
  return {query_gradient.transpose(1, 2), key_gradient.transpose(1, 2),
          value_gradient.transpose(1, 2)};
}

/// Pads the last dimension with zeros, as pad_last_dim in transformers/attention.cpp does.
Tensor padded(const Tensor& input, int64_t width) {
  Context& context = input.context();
  Sizes sizes = input.sizes();
  const int64_t own_width = sizes.back();
  sizes[sizes.size() - 1] = width;
  Tensor result = Tensor::empty(context, sizes, input.scalar_type());
  return with_node(result, {&input}, {}, [own_width](Node&, Tensors&& gradients) -> Tensors {
    return {empty_like(gradients[0].narrow(-1, 0, own_width))};
  });
}

}  // namespace

Tensor flash_attention(const Tensor& query, const Tensor& key, const Tensor& value) {
  constexpr int64_t kAlignment = 8;
  const int64_t width = query.size(3), padded_width = round_up(width, kAlignment);
  if (width != padded_width) {
    const Tensor q = padded(query, padded_width), k = padded(key, padded_width);
    return flash_attention(q, k, padded(value, padded_width)).narrow(-1, 0, width);
  }
  ForwardResult made;
  {
    const GradMode off(query.context(), false);
    made = run_forward(query.detach(), key.detach());
  }
  if (!needs_node({&query, &key, &value})) {
    made.log_sum_exp = {};
    made.random = {};
    return made.output;
  }
  auto node =
      add_node({&query, &key, &value},
               {key, query, value, made.log_sum_exp, made.output, made.random, made.random_unused},
               [](Node& self, Tensors&& gradients) { return run_backward(self, gradients[0]); });
  made.output.set_edge({std::move(node), 0});
  return made.output;
}

}  // namespace shardlens::planner::meta
