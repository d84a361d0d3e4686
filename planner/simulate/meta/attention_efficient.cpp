// Memory-efficient attention on CUDA: LibTorch's transformers/cuda/attention.cu and
// attention_backward.cu, with CUTLASS kernels of mem_eff_attention.
#include <algorithm>
#include <utility>

#include "base/units.h"
#include "planner/simulate/meta/attention_kernels.h"
#include "planner/simulate/meta/operators.h"

namespace shardlens::planner::meta {

namespace {

// The tensors that the node keeps, in the order in which it releases them.
enum SavedIndex : size_t { kKey, kQuery, kValue, kLogSumExp, kOutput, kOffset, kSeed };

/// A kernel of backward: the queries and keys of its tile, and a flag that is true if its sums stay
/// in registers.
struct Tile {
  int64_t queries, keys;
  bool in_registers;
};

/// Returns the first of the kernels in mem_eff_attention/kernels/cutlassB.h that takes the head
/// width and fits in shared memory.
Tile backward_tile(const Gpu& gpu, Type type, int64_t width) {
  constexpr int64_t kLargeSharedMemory = int64_t{128} << 10;
  const bool is_large = gpu.capability.shared_memory_per_block_opt_in_bytes >= kLargeSharedMemory;
  if (!is_reduced(type)) return {width > 64 && is_large ? 128 : 64, 64, true};
  if (width <= 64) return {64, 64, true};
  if (width > 128) return {128, 64, false};
  if (is_large) return {128, 128, true};
  const int generation = gpu.capability.major;
  if (generation == 7 || (generation == 8 && width <= 96)) return {128, 64, true};
  return {64, 64, false};
}

/// Applies Params::workspace_size in mem_eff_attention/kernel_backward.h, and num_splits_key in
/// attention_backward.cu. Arguments are [B, T, H, E].
int64_t workspace_bytes(const Tensor& query, const Tensor& key) {
  const int64_t batch = query.size(0), heads = query.size(2), width = query.size(3);
  const Tile tile = backward_tile(*query.context().gpu, query.scalar_type(), width);
  constexpr int64_t kHeader = 4;  // of each stored tile: a lock and a counter, padded
  const int64_t tiles = ceil_div(query.size(1), tile.queries) * ceil_div(width, tile.keys);
  int64_t elements = tiles * (kHeader + tile.queries * tile.keys);
  if (!tile.in_registers) {
    int64_t splits = ceil_div(key.size(1), tile.keys);
    if (batch * heads >= 256 && key.size(1) <= 2 * tile.keys) splits = 1;
    splits = std::max<int64_t>(std::min(splits, 200 / (batch * heads)), 1);
    elements += 2 * splits * tile.keys * round_up(width, tile.queries);
  }
  return batch * heads * elements * bytes_of(Type::fp32);
}

struct ForwardResult {
  Tensor seed, offset;  // of dropout
  Tensor output;        // [B, H, T, E]
  Tensor log_sum_exp;
};

/// Models _efficient_attention_forward in attention.cu.
ForwardResult run_forward(const Tensor& query, const Tensor& value, bool keeps_sums) {
  constexpr int64_t kRowsAlignment = 32, kWidestTile = 128;
  Context& context = query.context();
  const int64_t batch = query.size(0), heads = query.size(1), tokens = query.size(2);
  const Sizes sizes = {batch, tokens, heads, value.size(3)};
  ForwardResult made;
  if (context.torch->efficient_keeps_seed) {
    made.seed = Tensor::empty(context, {}, Type::int64);
    made.offset = Tensor::empty(context, {}, Type::int64);
  }
  made.output = Tensor::empty(context, sizes, query.scalar_type());
  const int64_t rows = keeps_sums ? round_up(tokens, kRowsAlignment) : 0;
  made.log_sum_exp = Tensor::empty(context, {batch, heads, rows}, Type::fp32);
  if (value.size(3) > kWidestTile && is_reduced(query.scalar_type())) {
    const Holder sums(Tensor::empty(context, sizes, Type::fp32));
  }
  made.output = made.output.transpose(1, 2);
  return made;
}

/// True for kernels that compute the sums of row_sums themselves: kKernelComputesDelta in
/// mem_eff_attention/kernel_backward.h.
bool sums_rows(const Gpu& gpu, Type type, int64_t width) {
  const bool is_volta = gpu.capability.major == 7 && gpu.capability.minor == 0;
  return is_reduced(type) && (!is_volta || backward_tile(gpu, type, width).in_registers);
}

/// Sums for each row the product of output and its gradient, in fp32. Arguments are [B, T, H, E].
Tensor row_sums(const Tensor& gradient, const Tensor& output) {
  Context& context = gradient.context();
  const int64_t batch = gradient.size(0), tokens = gradient.size(1), heads = gradient.size(2);
  if (sums_rows(*context.gpu, gradient.scalar_type(), gradient.size(3))) {
    return Tensor::empty(context, {batch, heads, tokens}, Type::fp32);
  }
  const Holder wide_gradient(gradient.to(Type::fp32));
  const Tensor wide_output = output.to(Type::fp32);
  const Holder product(empty_like(wide_output));
  const Tensor sums = Tensor::empty(context, {batch, tokens, heads}, Type::fp32);
  return sums.transpose(1, 2).contiguous();
}

/// Models _efficient_attention_backward in attention_backward.cu.
Tensors run_backward(Node& node, const Tensor& gradient) {
  const auto seen = [&](size_t i) { return node.saved[i].transpose(1, 2); };
  const Tensor query = seen(kQuery), key = seen(kKey), value = seen(kValue);
  Context& context = query.context();
  const Type type = query.scalar_type();
  const Tensor dense_gradient = gradient.transpose(1, 2).contiguous();
  const Tensor query_gradient = Tensor::empty(context, query.sizes(), type);
  const Tensor key_gradient = Tensor::empty(context, key.sizes(), type);
  const Tensor value_gradient = Tensor::empty(context, value.sizes(), type);
  Tensor keys, values;
  if (key.size(2) != query.size(2)) {  // summed over each group of heads afterwards
    const Sizes each = {key.size(0), key.size(1), query.size(2), key.size(3)};
    keys = Tensor::empty(context, each, type);
    values = Tensor::empty(context, each, type);
  }
  Tensor workspace;
  const Holder sums(row_sums(dense_gradient, seen(kOutput)));
  workspace = Tensor::empty(context, {workspace_bytes(query, key)}, Type::uint8);
  return {query_gradient.transpose(1, 2), key_gradient.transpose(1, 2),
          value_gradient.transpose(1, 2)};
}

}  // namespace

Tensor efficient_attention(const Tensor& query, const Tensor& key, const Tensor& value) {
  const bool keeps = needs_node({&query, &key, &value});
  ForwardResult made;
  {
    const GradMode off(query.context(), false);
    made = run_forward(query.detach(), value.detach(), keeps);
  }
  if (!keeps) {
    made.seed = {};
    made.offset = {};
    return made.output;
  }
  auto node =
      add_node({&query, &key, &value},
               {key, query, value, made.log_sum_exp, made.output, made.offset, made.seed},
               [](Node& self, Tensors&& gradients) { return run_backward(self, gradients[0]); });
  made.output.set_edge({std::move(node), 0});
  return made.output;
}

}  // namespace shardlens::planner::meta
