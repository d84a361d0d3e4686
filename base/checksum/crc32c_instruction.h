// Computes the same checksum in two ways: with the processor's own instruction for CRC-32C, if it
// has one, and with tables. The build takes the one of the files crc32c_instruction_*.cpp that fits
// the processor's family.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shardlens {

/// A function that goes on from the checksum `crc` of earlier bytes, without the inversions at
/// the beginning and the end.
using Crc32cUpdate = uint32_t (*)(uint32_t crc, std::span<const std::byte> bytes);

/// Returns the function that uses the instruction; nullptr if this processor has no such
/// instruction.
Crc32cUpdate find_crc32c_instruction();

uint32_t update_by_tables(uint32_t crc, std::span<const std::byte> bytes);

/// Returns the factor by which the checksum of earlier bytes is multiplied (see crc32c_product)
/// when `bytes` further bytes follow them.
uint32_t crc32c_shift(uint64_t bytes);
/// Returns the product of two polynomials modulo the checksum's polynomial.
uint32_t crc32c_product(uint32_t a, uint32_t b);

}  // namespace shardlens
