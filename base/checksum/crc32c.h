// Computes CRC-32C (Castagnoli), the checksum of every block of a recording and of a checkpoint's
// files. Shardlens has its own code since the distributions that it is built on do not all package
// one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shardlens {

/// Returns the checksum of `bytes` as in RFC 3720: reflected, start and end inverted; for
/// "123456789" it is 0xE3069283. `before` is the checksum of the bytes in front of these, if there
/// are any.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

/// The size of the pieces in which data is summed right when it is read or written, so that a piece
/// stays in the processor's cache in between. It is ten times the bytes that the instruction takes
/// at once.
constexpr size_t kCrc32cPieceBytes = 240 << 10;

/// Returns the checksum of two runs of bytes, one behind the other, from the checksum of each.
uint32_t crc32c_joined(uint32_t first, uint32_t second, uint64_t second_bytes);

}  // namespace shardlens
