#include "planner/simulate/meta/attention.h"

#include <stdexcept>
#include <string>
#include <utility>

#include "base/check.h"
#include "planner/simulate/meta/attention_kernels.h"
#include "planner/simulate/meta/autograd.h"
#include "planner/simulate/meta/operators.h"

namespace shardlens::planner::meta {

namespace {

/// The tensors and options that the rules look at.
struct Question {
  const Tensor& query;
  const Tensor& key;
  const Tensor& value;
  const AttentionOptions& options;

  int64_t width() const { return query.size(3); }
  bool has_elements() const { return query.numel() > 0 && key.numel() > 0; }
  bool has_equal_widths() const { return width() == key.size(3) && width() == value.size(3); }
  bool has_equal_heads() const { return query.size(1) == key.size(1); }
  /// True if every query head has its key head.
  bool fits_heads() const {
    if (!options.grouped) return has_equal_heads();
    return query.size(1) % key.size(1) == 0 && key.size(1) == value.size(1);
  }
  bool is_row_by_row() const {
    return query.stride(3) == 1 && key.stride(3) == 1 && value.stride(3) == 1;
  }
};

/// Applies use_flash_attention in transformers/cuda/sdp_utils.cpp.
bool takes_flash(const Question& q) {
  constexpr int64_t kWidest = 256, kTooWide = 192, kNarrowAgain = 224;
  const ComputeCapability& capability = q.query.context().gpu->capability;
  if (capability.major < 8 || !is_reduced(q.query.scalar_type())) return false;
  if (!q.has_equal_widths() || q.width() > kWidest) return false;
  // Backward of these widths needs more shared memory than such GPUs have.
  const bool is_small = (capability.major == 8 && capability.minor >= 6) || capability.major == 12;
  const bool is_too_wide = q.width() > kTooWide && q.width() <= kNarrowAgain;
  if (is_small && is_too_wide && needs_node({&q.query, &q.key, &q.value})) return false;
  if (q.options.causal && q.query.size(2) != q.key.size(2)) return false;
  return q.fits_heads() && q.has_elements() && q.is_row_by_row();
}

/// Applies use_mem_efficient_attention in transformers/cuda/sdp_utils.cpp.
bool takes_efficient(const Question& q) {
  constexpr int64_t kAlignmentBytes = 16;
  const Type type = q.query.scalar_type();
  const bool has_all_types = q.query.context().gpu->capability.major >= 8;
  if (!has_all_types && type == Type::bf16) return false;
  const bool is_free = !has_all_types && !is_reduced(type);  // such kernels take any width
  const int64_t alignment = is_free ? 1 : kAlignmentBytes / bytes_of(type);
  if (q.width() % alignment != 0 || q.value.size(3) % alignment != 0) return false;
  const bool takes_groups = q.query.context().torch->efficient_takes_groups;
  return q.width() == q.key.size(3) && (takes_groups ? q.fits_heads() : q.has_equal_heads()) &&
         q.has_elements() && q.is_row_by_row();
}

/// Applies use_flash_attention_cpp in transformers/sdp_utils_cpp.cpp.
bool takes_cpu_flash(const Question& q) {
  return q.has_equal_widths() && q.fits_heads() && q.has_elements() && q.is_row_by_row();
}

std::string no_kernel(const Question& q) {
  return "attention with head width " + std::to_string(q.width()) +
         ": none of the allowed kernels takes it; allow the math kernel too";
}

/// Runs the backward of repeat_interleave with one number: sums the copies' gradients up.
Tensor sum_of_repeats(const Tensor& gradient, int64_t dim, int64_t repeats) {
  Sizes sizes = gradient.sizes();
  const auto at = static_cast<size_t>(dim);
  sizes[at] /= repeats;
  sizes.insert(at + 1, repeats);
  const Tensor total = sum(gradient.reshape(sizes), {dim + 1}, gradient.scalar_type());
  sizes.erase(at + 1);
  return total.view(sizes);
}

}  // namespace

AttentionKernel choose_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                                 const AttentionOptions& options) {
  const Question question{query, key, value, options};
  const Context& context = query.context();
  const AttentionKernels& allowed = context.attention;
  if (!context.is_cuda()) {
    if (allowed.flash && takes_cpu_flash(question)) return AttentionKernel::flash;
  } else {
    if (allowed.flash && takes_flash(question)) return AttentionKernel::flash;
    if (allowed.efficient && takes_efficient(question)) return AttentionKernel::efficient;
  }
  if (allowed.math) return AttentionKernel::math;
  throw std::invalid_argument(no_kernel(question));
}

Tensor attention(const Tensor& query, const Tensor& key, const Tensor& value,
                 const AttentionOptions& options) {
  const CallScope call(query.context());
  switch (choose_attention(query, key, value, options)) {
    case AttentionKernel::flash:
      return query.is_cuda() ? flash_attention(query, key, value)
                             : cpu_flash_attention(query, key, value, options);
    case AttentionKernel::efficient:
      return efficient_attention(query, key, value);
    case AttentionKernel::math:
      return math_attention(query, key, value, options);
  }
  unreachable("attention kernel out of range");
}

Tensor repeat_interleave(const Tensor& input, int64_t repeats, int64_t dim) {
  Sizes sizes = input.sizes();
  sizes[static_cast<size_t>(dim)] *= repeats;
  const CallScope call(input.context());
  Tensor result = Tensor::empty(input.context(), sizes, input.scalar_type());
  return with_node(result, {&input}, {}, [dim, repeats](Node&, Tensors&& gradients) -> Tensors {
    return {sum_of_repeats(gradients[0], dim, repeats)};
  });
}

}  // namespace shardlens::planner::meta
