#include <nmmintrin.h>

#include <cstring>

#include "profiler/file/crc32c_instruction.h"

namespace shardlens::profiler {

namespace {

__attribute__((target("sse4.2"))) uint32_t update(uint32_t crc, std::span<const std::byte> bytes) {
  uint64_t wide = crc;
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= bytes.size(); at += sizeof(uint64_t)) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    wide = _mm_crc32_u64(wide, word);
  }
  crc = static_cast<uint32_t>(wide);
  for (; at < bytes.size(); ++at) crc = _mm_crc32_u8(crc, std::to_integer<uint8_t>(bytes[at]));
  return crc;
}

}  // namespace

Crc32cUpdate find_crc32c_instruction() {
  return __builtin_cpu_supports("sse4.2") != 0 ? update : nullptr;
}

}  // namespace shardlens::profiler
