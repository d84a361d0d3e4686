#include "runtime/comm/rank_sum.h"

#include <algorithm>

#include "base/check.h"
#include "runtime/comm/half.h"

namespace shardlens::runtime {
namespace {

constexpr int64_t kBlock = 2048;  // elements; the partial sums stay in the first-level cache

struct Fp32 {
  using StoredType = float;
  static float widen(float value) { return value; }
  static float narrow(float value) { return value; }
};

struct Bf16 {
  using StoredType = uint16_t;
  static float widen(uint16_t value) { return bf16_to_fp32(value); }
  static uint16_t narrow(float value) { return fp32_to_bf16(value); }
};

struct Fp16 {
  using StoredType = uint16_t;
  static float widen(uint16_t value) { return fp16_to_fp32(value); }
  static uint16_t narrow(float value) { return fp32_to_fp16(value); }
};

template <typename Type>
void set(float* __restrict sum, const typename Type::StoredType* __restrict input, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) sum[i] = Type::widen(input[i]);
}

template <typename Type>
void add(float* __restrict sum, const typename Type::StoredType* __restrict input, int64_t numel) {
  for (int64_t i = 0; i < numel; ++i) sum[i] += Type::widen(input[i]);
}

template <typename Type>
void divide(const float* sum, typename Type::StoredType* output, int64_t numel, float ranks) {
  for (int64_t i = 0; i < numel; ++i) output[i] = Type::narrow(sum[i] / ranks);
}

template <typename Type>
void mean(std::span<const void* const> sources, void* output, int64_t numel) {
  using StoredType = typename Type::StoredType;
  alignas(64) float sum[kBlock];
  for (int64_t start = 0; start < numel; start += kBlock) {
    const int64_t count = std::min(kBlock, numel - start);
    set<Type>(sum, static_cast<const StoredType*>(sources[0]) + start, count);
    for (const void* source : sources.subspan(1)) {
      add<Type>(sum, static_cast<const StoredType*>(source) + start, count);
    }
    divide<Type>(sum, static_cast<StoredType*>(output) + start, count,
                 static_cast<float>(sources.size()));
  }
}

}  // namespace

void mean_in_rank_order(std::span<const void* const> sources, void* output, int64_t numel,
                        DType dtype) {
  check(!sources.empty(), "a mean of no ranks");
  switch (dtype) {
    case DType::fp32:
      return mean<Fp32>(sources, output, numel);
    case DType::bf16:
      return mean<Bf16>(sources, output, numel);
    case DType::fp16:
      return mean<Fp16>(sources, output, numel);
  }
  unreachable("no such dtype");
}

void divide_by_ranks(const float* sum, void* output, int64_t numel, DType dtype, int ranks) {
  check(ranks >= 1, "a mean of no ranks");
  const auto divisor = static_cast<float>(ranks);
  switch (dtype) {
    case DType::fp32:
      return divide<Fp32>(sum, static_cast<float*>(output), numel, divisor);
    case DType::bf16:
      return divide<Bf16>(sum, static_cast<uint16_t*>(output), numel, divisor);
    case DType::fp16:
      return divide<Fp16>(sum, static_cast<uint16_t*>(output), numel, divisor);
  }
  unreachable("no such dtype");
}

void widen(const void* input, float* output, int64_t numel, DType dtype) {
  switch (dtype) {
    case DType::fp32:
      return set<Fp32>(output, static_cast<const float*>(input), numel);
    case DType::bf16:
      return set<Bf16>(output, static_cast<const uint16_t*>(input), numel);
    case DType::fp16:
      return set<Fp16>(output, static_cast<const uint16_t*>(input), numel);
  }
  unreachable("no such dtype");
}

}  // namespace shardlens::runtime
