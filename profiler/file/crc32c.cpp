#include "profiler/file/crc32c.h"

#include <array>
#include <cstring>

namespace shardlens::profiler {

namespace {

constexpr int kSlices = 8;
using Tables = std::array<std::array<uint32_t, 256>, kSlices>;

/// tables[k][b]: what the byte b does to the checksum when k bytes follow it.
constexpr Tables make_tables() {
  constexpr uint32_t kPolynomial = 0x82F63B78;
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t slice = 1; slice < kSlices; ++slice) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t shorter = tables[slice - 1][byte];
      tables[slice][byte] = (shorter >> 8) ^ tables[0][shorter & 0xFF];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes) {
  uint32_t crc = ~0U;
  size_t at = 0;
  for (; at + kSlices <= bytes.size(); at += kSlices) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + at, sizeof word);
    word ^= crc;
    crc = 0;
    for (size_t i = 0; i < kSlices; ++i) crc ^= kTables[kSlices - 1 - i][(word >> (8 * i)) & 0xFF];
  }
  for (; at < bytes.size(); ++at) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<uint32_t>(bytes[at])) & 0xFF];
  }
  return ~crc;
}

}  // namespace shardlens::profiler
