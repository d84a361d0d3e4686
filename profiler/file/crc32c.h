// CRC-32C (Castagnoli), the checksum of every block of a recording and of a checkpoint's files.
// Written here because the distributions that we build on do not all package one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shardlens::profiler {

/// As in RFC 3720: reflected, start and end inverted; of "123456789" it is 0xE3069283.
uint32_t crc32c(std::span<const std::byte> bytes);

/// Of two runs of bytes one behind the other, from the checksum of each.
uint32_t crc32c_joined(uint32_t first, uint32_t second, uint64_t second_bytes);

}  // namespace shardlens::profiler
