// Converts bf16 and fp16 to fp32 and back, rounded to nearest even, as IEEE 754 and PyTorch do it.
//
// No branches and no intermediate fp32 subnormals: loops over these functions vectorise, and a
// process that flushes subnormals to zero gets the same bits. A NaN comes back as the quiet NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace shardlens::runtime {

inline float bf16_to_fp32(uint16_t value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value) << 16);
}

inline uint16_t fp32_to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const bool nan = (bits & 0x7fffffffu) > 0x7f800000u;
  return static_cast<uint16_t>(nan ? 0x7fc0u : rounded);
}

// [Note: fp16 subnormals]
// One step of an fp16 subnormal is 2^-24, which is also one step of fp32 at 0.5. So fp16_to_fp32
// writes the fraction into the low bits of 0.5 and subtracts 0.5, which gives the value exactly.
// Back, adding 0.5 to a small fp32 rounds it to a whole number of such steps, to nearest even.
inline float fp16_to_fp32(uint16_t value) {
  const uint32_t magnitude = value & 0x7fffu;
  const uint32_t sign = static_cast<uint32_t>(value & 0x8000u) << 16;
  const uint32_t rebias = (127u - 15u) << 23;
  const uint32_t special = magnitude >= 0x7c00u ? rebias : 0u;  // infinity and NaN
  const uint32_t normal = (magnitude << 13) + rebias + special;
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(0x3f000000u | magnitude) - 0.5f);
  return std::bit_cast<float>(sign | (magnitude < 0x0400u ? subnormal : normal));
}

inline uint16_t fp32_to_fp16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t rebias = (127u - 15u) << 23;
  const uint32_t normal = (magnitude - rebias + 0x0fffu + ((magnitude >> 13) & 1u)) >> 13;
  const uint32_t subnormal =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t result = magnitude < 0x38800000u ? subnormal : normal;  // below 2^-14
  result = magnitude >= 0x477ff000u ? 0x7c00u : result;            // from 65520 on: infinity
  result = magnitude > 0x7f800000u ? 0x7e00u : result;
  return static_cast<uint16_t>(result | ((bits >> 16) & 0x8000u));
}

}  // namespace shardlens::runtime
