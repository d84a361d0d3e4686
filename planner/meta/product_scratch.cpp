#include "planner/meta/product_scratch.h"

#include <algorithm>

#include "planner/meta/rounding.h"

namespace shardlens::planner::meta {

namespace {

/// Which of oneDNN's ways a product goes.
enum class Way {
  none,      // LibTorch's own loops
  widening,  // AVX-512, but not for the type: sums in fp32, then a copy
  vectors,   // AVX-512 for the type
  tiles      // AMX
};

Way way_of(const Processor& processor, Type type) {
  if (!processor.avx512) return Way::none;
  if (type == Type::bf16) {
    if (processor.amx_bf16) return Way::tiles;
    if (processor.avx512_bf16) return Way::vectors;
    return Way::widening;
  }
  if (type != Type::fp16) return Way::none;
  if (processor.amx_fp16) return Way::tiles;
  return processor.avx512_fp16 ? Way::vectors : Way::none;
}

// The constants below are the least that cover what oneDNN took in LibTorch 2.11 for shapes drawn
// at random, as in tests/runtime/operators_test.cpp, under ONEDNN_MAX_CPU_ISA for processors that
// were not at hand: copies of what it multiplies, cut into pieces in the order that the
// instructions want, and sums of a piece.
constexpr int64_t kElement = 2, kSum = 4;

struct Padded {
  int64_t rows, inner, columns;

  explicit Padded(const ProductSizes& sizes)
      : rows(round_up(sizes.rows, 64)),
        inner(std::max<int64_t>(round_up(sizes.inner, 32), 64)),
        columns(round_up(sizes.columns, 64)) {}
};

int64_t tiles_bytes(const ProductSizes& sizes) {
  constexpr int64_t kLong = 768, kMostFirst = 9 << 17;
  const Padded padded(sizes);
  constexpr int64_t kSums = kSum * 256 * 256;
  const bool is_even = sizes.inner % 32 == 0;
  int64_t fixed = is_even ? 22528 : 46080;
  if (!is_even && !sizes.transposed && sizes.inner > 512) fixed += kSums;
  const int64_t tail = padded.inner > kLong ? 18 * padded.inner : 0;
  const int64_t columns = sizes.inner <= 1024 && sizes.columns > 64 ? 128 : 224;
  const int64_t second = kElement * padded.inner * std::min(padded.columns, columns);
  if (!sizes.transposed) return fixed + tail + second;
  const int64_t rows = std::min<int64_t>(padded.rows, 256);
  return fixed + tail + second + std::min(kElement * rows * padded.inner, kMostFirst);
}

int64_t vectors_bytes(Type type, const ProductSizes& sizes) {
  constexpr int64_t kFixed = 94208, kMostFirst = 9 << 17, kMostSecond = 1 << 20;
  const Padded padded(sizes);
  const int64_t first = std::min(kElement * padded.rows * padded.inner, kMostFirst);
  int64_t bytes = kFixed + kElement * padded.inner * std::min<int64_t>(padded.columns, 224);
  bytes += kSum * padded.rows * 64 + (sizes.transposed ? 2 * first : first);
  if (type != Type::fp16) return bytes;
  return bytes + std::min(kElement * padded.columns * padded.inner, kMostSecond);
}

}  // namespace

int64_t product_scratch_bytes(const Context& context, Type type, const ProductSizes& sizes) {
  // use_mkldnn_matmul in LibTorch's Matmul.cpp
  constexpr int64_t kLeastProduct = 16 * 16 * 16;
  if (context.is_cuda() || sizes.rows * sizes.inner * sizes.columns <= kLeastProduct) return 0;
  const Way way = way_of(context.processor, type);
  if (way == Way::none) return 0;
  if (way == Way::widening) return kSum * sizes.rows * sizes.columns + 128;
  return context.threads * (way == Way::tiles ? tiles_bytes(sizes) : vectors_bytes(type, sizes));
}

void take_product_scratch(Context& context, Type type, const ProductSizes& sizes) {
  const int64_t bytes = product_scratch_bytes(context, type, sizes);
  if (bytes > 0) Tensor::empty(context, {bytes}, Type::boolean);
}

}  // namespace shardlens::planner::meta
