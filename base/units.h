// Formats and parses bytes, in the same way everywhere: in binary units, since memory is counted in
// them; and rounds integers up, as allocators and kernels do: to a block, a page, a tile.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shardlens {

/// Returns a / b, rounded up; both are at least 0, b is not 0.
constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
/// Returns the smallest multiple of `multiple` that is not below `a`.
constexpr int64_t round_up(int64_t a, int64_t multiple) { return ceil_div(a, multiple) * multiple; }

/// Formats bytes as "1.50 GiB", below 1 KiB as "640 B". From 1 KiB on it has three digits at least,
/// so that two sizes can be told apart.
std::string bytes_text(int64_t bytes);

/// Parses "80GiB", "512 MiB", "1.5GB" or plain bytes; GB and the like, without an i, count in
/// 1000s. Throws std::invalid_argument for anything else, and for less than one byte or more than
/// 2^60.
int64_t parse_bytes(std::string_view text);

}  // namespace shardlens
