// Hashes numbers that a file gives. The hash begins with a number that the process draws, so that
// no file can choose addresses that all fall into one place of a table.
#pragma once

#include <cstdint>
#include <random>

namespace shardlens {

/// The number that this process has drawn. It is drawn before any code of a file that includes this
/// one runs, so that hashed() needs no check of whether it is set: readers call it twice an event.
inline const uint64_t hash_seed = uint64_t{std::random_device{}()} << 32 | std::random_device{}();

/// Returns a hash whose high bits depend on all bits of `number`. It differs from process to
/// process.
inline uint64_t hashed(uint64_t number) {
  number = (number ^ hash_seed) * 0x9E3779B97F4A7C15;
  return (number ^ number >> 32) * 0xD6E8FEB86659FD93;
}

}  // namespace shardlens
