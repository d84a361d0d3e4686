// Formats and parses bytes, in the same way everywhere: in binary units, since memory is counted in
// them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shardlens::profiler {

/// Formats bytes as "1.50 GiB", below 1 KiB as "640 B". From 1 KiB on it has three digits at least,
/// so that two sizes can be told apart.
std::string bytes_text(int64_t bytes);

/// Parses "80GiB", "512 MiB", "1.5GB" or plain bytes; GB and the like, without an i, count in
/// 1000s. Throws std::invalid_argument for anything else, and for less than one byte or more than
/// 2^60.
int64_t parse_bytes(std::string_view text);

}  // namespace shardlens::profiler
