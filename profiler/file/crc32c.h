// CRC-32C (Castagnoli), the checksum of every block of a recording. Written here because the
// distributions that we build on do not all package one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shardlens::profiler {

/// As in RFC 3720: reflected, start and end inverted; of "123456789" it is 0xE3069283.
uint32_t crc32c(std::span<const std::byte> bytes);

}  // namespace shardlens::profiler
