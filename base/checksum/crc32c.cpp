#include "base/checksum/crc32c.h"

#include <array>
#include <cstring>

#include "base/checksum/crc32c_instruction.h"

namespace shardlens {

namespace {

constexpr uint32_t kPolynomial = 0x82F63B78;  // reflected: bit 31 is the power 0 of x
constexpr int kSlices = 8;
using Tables = std::array<std::array<uint32_t, 256>, kSlices>;

/// Fills tables[k][b] with the effect of the byte b on the checksum when k bytes follow it.
constexpr Tables make_tables() {
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

uint32_t update_by_tables(uint32_t crc, std::span<const std::byte> bytes) {
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
  return crc;
}

uint32_t crc32c_product(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t power = 1U << 31; power != 0; power >>= 1) {
    if ((a & power) != 0) product ^= b;
    b = (b >> 1) ^ ((b & 1) != 0 ? kPolynomial : 0);
  }
  return product;
}

/// Returns x to the power of 8 x `bytes`.
uint32_t crc32c_shift(uint64_t bytes) {
  uint32_t shift = 1U << 31;
  uint32_t factor = 1U << 23;  // one byte's, squared again and again
  for (; bytes != 0; bytes >>= 1) {
    if ((bytes & 1) != 0) shift = crc32c_product(shift, factor);
    factor = crc32c_product(factor, factor);
  }
  return shift;
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
  static const Crc32cUpdate kInstruction = find_crc32c_instruction();
  return ~(kInstruction != nullptr ? kInstruction : update_by_tables)(~before, bytes);
}

uint32_t crc32c_joined(uint32_t first, uint32_t second, uint64_t second_bytes) {
  return crc32c_product(crc32c_shift(second_bytes), first) ^ second;
}

}  // namespace shardlens
