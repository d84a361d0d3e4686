// Makes text that others wrote safe to print: characters that would move a terminal's cursor, start
// a line or turn the direction of reading are spelled out.
#pragma once

#include <string>
#include <string_view>

namespace shardlens {

bool is_utf8(std::string_view text);

/// Returns the text on one line. Control characters and those that turn the direction of reading
/// become "\u001b", "\n", "\u202e"; bytes that are no UTF-8 become "\xff". All else stays as it is.
std::string shown(std::string_view text);

/// Does the same for a whole output, which may have several lines. JSON that has no such characters
/// outside its texts stays the same JSON.
std::string shown_lines(std::string_view text);

}  // namespace shardlens
