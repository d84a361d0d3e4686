// Two ways to the same checksum: the processor's own instruction for CRC-32C, where it has one, and
// tables. One of the files crc32c_instruction_*.cpp is built, as the processor's family asks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shardlens::profiler {

/// Goes on from the checksum `crc` of earlier bytes, without the inversions at begin and end.
using Crc32cUpdate = uint32_t (*)(uint32_t crc, std::span<const std::byte> bytes);

/// nullptr where this processor has no such instruction.
Crc32cUpdate find_crc32c_instruction();

uint32_t update_by_tables(uint32_t crc, std::span<const std::byte> bytes);

/// What so many bytes do to the checksum of those before them: its product with this.
uint32_t crc32c_shift(uint64_t bytes);
/// Of two polynomials, modulo that of the checksum.
uint32_t crc32c_product(uint32_t a, uint32_t b);

}  // namespace shardlens::profiler
