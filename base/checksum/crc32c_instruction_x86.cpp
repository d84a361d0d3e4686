#include <nmmintrin.h>

#include <cstring>

#include "base/checksum/crc32c_instruction.h"

namespace shardlens {

namespace {

/// The length of the three runs of bytes that are summed side by side: a result takes three cycles,
/// and one can begin in each.
constexpr size_t kRunBytes = 8 << 10;

uint64_t word_at(const std::byte* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, sizeof word);
  return word;
}

/// Returns the checksum of three runs, one behind the other.
__attribute__((target("sse4.2"))) uint32_t update_three(uint32_t crc, const std::byte* bytes) {
  static const uint32_t kRun = crc32c_shift(kRunBytes);
  uint64_t first = crc, second = 0, third = 0;
  for (size_t at = 0; at < kRunBytes; at += sizeof(uint64_t)) {
    first = _mm_crc32_u64(first, word_at(bytes + at));
    second = _mm_crc32_u64(second, word_at(bytes + kRunBytes + at));
    third = _mm_crc32_u64(third, word_at(bytes + 2 * kRunBytes + at));
  }
  const uint32_t two =
      crc32c_product(kRun, static_cast<uint32_t>(first)) ^ static_cast<uint32_t>(second);
  return crc32c_product(kRun, two) ^ static_cast<uint32_t>(third);
}

__attribute__((target("sse4.2"))) uint32_t update(uint32_t crc, std::span<const std::byte> bytes) {
  size_t at = 0;
  for (; at + 3 * kRunBytes <= bytes.size(); at += 3 * kRunBytes) {
    crc = update_three(crc, bytes.data() + at);
  }
  uint64_t wide = crc;
  for (; at + sizeof(uint64_t) <= bytes.size(); at += sizeof(uint64_t)) {
    wide = _mm_crc32_u64(wide, word_at(bytes.data() + at));
  }
  crc = static_cast<uint32_t>(wide);
  for (; at < bytes.size(); ++at) crc = _mm_crc32_u8(crc, std::to_integer<uint8_t>(bytes[at]));
  return crc;
}

}  // namespace

Crc32cUpdate find_crc32c_instruction() {
  return __builtin_cpu_supports("sse4.2") != 0 ? update : nullptr;
}

}  // namespace shardlens
