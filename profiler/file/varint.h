// Writes and reads unsigned LEB128 numbers, 7 bits a byte, and signed ones as zigzag.
#pragma once

#include <cstdint>

#include "profiler/file/format.h"

namespace shardlens::profiler {

constexpr uint64_t zigzag(uint64_t difference) {
  return (difference << 1) ^ (0 - (difference >> 63));
}
constexpr uint64_t unzigzag(uint64_t code) { return (code >> 1) ^ (0 - (code & 1)); }

inline void put_varint(Bytes& bytes, uint64_t number) {
  while (number >= 0x80) {
    bytes.push_back(static_cast<std::byte>(number | 0x80));
    number >>= 7;
  }
  bytes.push_back(static_cast<std::byte>(number));
}

inline void put_signed(Bytes& bytes, int64_t number) {
  put_varint(bytes, zigzag(static_cast<uint64_t>(number)));
}

/// Takes a number from the front of the bytes; 0, with `failed` set, if they end within it.
inline uint64_t take_varint(ByteReader& reader) {
  uint64_t number = 0;
  for (int shift = 0; shift < 64; shift += 7) {
    const auto byte = reader.take<uint8_t>();
    if (reader.failed) return 0;
    number |= uint64_t{byte & 0x7FU} << shift;
    if ((byte & 0x80U) == 0) return number;
  }
  reader.failed = true;
  return 0;
}

inline int64_t take_signed(ByteReader& reader) {
  return static_cast<int64_t>(unzigzag(take_varint(reader)));
}

}  // namespace shardlens::profiler
