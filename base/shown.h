// Makes text that others wrote safe to print: characters that would move a terminal's cursor, start
// a line or turn the direction of reading are spelled out.
#pragma once

#include <string>
#include <string_view>

namespace shardlens {

bool is_utf8(std::string_view text);

/// Returns the text on one line. Control characters and those that turn the direction of reading
/// become "\u001b", "\n", "\u202e"; bytes that are not UTF-8 become "\xff". The rest is kept.
std::string shown(std::string_view text);

/// Escapes a whole output in the same way, but keeps its line breaks. JSON that has no such
/// characters outside its strings stays the same JSON.
std::string shown_lines(std::string_view text);

}  // namespace shardlens
