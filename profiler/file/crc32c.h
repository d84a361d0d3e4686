// CRC-32C (Castagnoli), the checksum of every block of a recording and of a checkpoint's files.
// Written here because the distributions that we build on do not all package one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shardlens::profiler {

/// As in RFC 3720: reflected, start and end inverted; of "123456789" it is 0xE3069283. `before`: of
/// the bytes in front of these, if there are any.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

/// What is summed right when it is read or written goes in pieces that stay in the processor's
/// cache in between; ten times what the instruction takes at once.
constexpr size_t kCrc32cPieceBytes = 240 << 10;

/// Of two runs of bytes one behind the other, from the checksum of each.
uint32_t crc32c_joined(uint32_t first, uint32_t second, uint64_t second_bytes);

}  // namespace shardlens::profiler
