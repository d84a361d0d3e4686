// Flash attention on the CPU: LibTorch's native/cpu/FlashAttentionKernel.cpp.
#include <algorithm>
#include <utility>

#include "base/units.h"
#include "planner/simulate/meta/attention_kernels.h"
#include "planner/simulate/meta/operators.h"
#include "planner/simulate/meta/product_scratch.h"

namespace shardlens::planner::meta {

namespace {

// The tensors that the node keeps, in the order in which it releases them.
enum SavedIndex : size_t { kKey, kQuery, kValue, kLogSumExp, kOutput };

/// The queries and keys that a thread works on at a time.
struct Block {
  int64_t queries, keys;
};

/// Returns the block that flash_attention_kernel_impl in FlashAttentionKernel.cpp uses, forward and
/// backward alike.
Block block_of(int64_t queries, int64_t keys) {
  constexpr int64_t kKeys = 512;
  const int64_t wanted = queries >= 768 ? 256 : queries >= 192 ? 64 : 32;
  return {std::min(wanted, queries), std::min(kKeys, keys)};
}

struct ForwardResult {
  Tensor output;  // [B, H, T, E]
  Tensor log_sum_exp;
};

/// True if keys and values are reordered as matrix instructions want them: the processor has such
/// instructions (could_pack in CPUBlas.cpp), and the cost is soon earned back.
bool packs(const Tensor& query, const Tensor& key, const Block& block, bool causal) {
  const bool is_bf16 = query.scalar_type() == Type::bf16;
  const Processor& processor = query.context().processor;
  if (!(is_bf16 ? processor.amx_bf16 : processor.amx_fp16)) return false;
  const int64_t least = is_bf16 ? 64 : 16, least_uses = is_bf16 ? 4 : 1;
  const int64_t queries = query.size(2), keys = key.size(2);
  if (queries < least || keys < least) return false;
  const int64_t heads = query.size(0) * query.size(1), key_heads = key.size(0) * key.size(1);
  const int64_t blocks =
      ceil_div(heads * ceil_div(queries, block.queries), query.context().threads);
  const int64_t seen = causal ? std::min(queries, keys) : keys;
  return blocks * block.queries * seen >= least_uses * key_heads * keys;
}

/// Returns the buffers that reduced precision takes besides the sums, until all is done.
Tensors reduced_buffers(const Tensor& query, const Tensor& key, const Block& block, bool causal) {
  Context& context = query.context();
  const int64_t threads = context.threads, keys = key.size(2), width = query.size(3);
  const auto buffer = [&](const Sizes& sizes) {
    return Tensor::empty(context, sizes, query.scalar_type());
  };
  if (!packs(query, key, block, causal)) return {buffer({threads, block.queries, block.keys})};
  const int64_t heads = key.size(0) * key.size(1), even_width = round_up(width, 2);
  const int64_t even_block = round_up(block.keys, 2), tail = (keys - 1) % block.keys + 1;
  const int64_t even_keys = (keys - 1) / block.keys * even_block + round_up(tail, 2);
  Tensors buffers = {buffer({threads, block.queries, even_block})};
  buffers.push_back(buffer({heads, keys, even_width}));
  buffers.push_back(buffer({heads, even_keys, width}));
  if (width != even_width) buffers.push_back(buffer({threads, block.queries, even_width}));
  buffers.push_back(buffer({threads, block.keys, width}));
  return buffers;
}

/// Models cpu_flash_attention.
ForwardResult run_forward(const Tensor& query, const Tensor& key, bool causal) {
  Context& context = query.context();
  const Type type = query.scalar_type();
  const int64_t batch = query.size(0), heads = query.size(1), queries = query.size(2);
  const int64_t keys = key.size(2), width = query.size(3), threads = context.threads;
  const Block block = block_of(queries, keys);
  ForwardResult made{.output = Tensor::empty(context, {batch, queries, heads, width}, type),
                     .log_sum_exp = {}};
  made.log_sum_exp = Tensor::empty(context, {batch, queries, heads}, Type::fp32);
  const int64_t sums = block.queries * (block.keys + 2 + width);
  const Holder buffer(Tensor::empty(context, {threads, sums}, Type::fp32));
  made.output = made.output.transpose(1, 2);
  if (!is_reduced(type)) return made;
  Tensors buffers = reduced_buffers(query, key, block, causal);
  while (!buffers.empty()) buffers.pop_back();
  return made;
}

/// Computes the gradients of values, queries and keys: products in reduced precision, of a block of
/// queries and one of keys, for each head. oneDNN keeps the scale of the latter two as a
/// tensor.
void multiply_blocks(Context& context, Type type, const Block& block, int64_t width) {
  const int64_t q = block.queries, k = block.keys;
  const ProductSizes turned{.rows = k, .inner = q, .columns = width, .transposed = true};
  if (product_scratch_bytes(context, type, turned) == 0) return;
  take_product_scratch(context, type, turned);
  const Holder scales(Tensor::empty(context, {context.threads}, Type::fp32));
  take_product_scratch(context, type, {.rows = q, .inner = k, .columns = width});
  take_product_scratch(context, type, turned);
}

/// Models cpu_flash_attention_backward.
Tensors run_backward(Node& node) {
  const Tensor &query = node.saved[kQuery], &key = node.saved[kKey];
  Context& context = query.context();
  const Type type = query.scalar_type();
  const auto gradient_of = [&](const Tensor& input) {
    return Tensor::empty(context, input.transpose(1, 2).sizes(), type);
  };
  const Tensor query_gradient = gradient_of(query), key_gradient = gradient_of(key),
               value_gradient = gradient_of(node.saved[kValue]);
  const Block block = block_of(query.size(2), key.size(2));
  const int64_t threads = context.threads;
  const Sizes scores = {threads, 2, block.queries, block.keys};
  const Holder buffer(Tensor::empty(context, scores, Type::fp32));
  const Holder reduced(is_reduced(type) ? Tensor::empty(context, scores, type) : Tensor());
  const Holder sums(Tensor::empty(context, {block.queries}, Type::fp32));
  multiply_blocks(context, type, block, query.size(3));
  return {query_gradient.transpose(1, 2), key_gradient.transpose(1, 2),
          value_gradient.transpose(1, 2)};
}

}  // namespace

Tensor cpu_flash_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                           const AttentionOptions& options) {
  ForwardResult made;
  {
    const GradMode off(query.context(), false);
    made = run_forward(query.detach(), key.detach(), options.causal);
  }
  return with_node(made.output, {&query, &key, &value},
                   {key, query, value, made.log_sum_exp, made.output},
                   [](Node& self, Tensors&&) { return run_backward(self); });
}

}  // namespace shardlens::planner::meta
