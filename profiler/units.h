// Bytes in words, the same everywhere: binary units, since memory is counted in them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shardlens::profiler {

/// "1.50 GiB"; below 1 KiB "640 B". Three digits at least, so that two sizes can be told apart.
std::string bytes_text(int64_t bytes);

/// "80GiB", "512 MiB", "1.5GB" or plain bytes; a unit of 1000s has no i. Throws
/// std::invalid_argument for anything else, and for less than one byte or more than 2^60.
int64_t parse_bytes(std::string_view text);

}  // namespace shardlens::profiler
