#include "base/shown.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

namespace shardlens {

namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 1;
  bool is_utf8 = true;
};

/// Returns the character that a text begins with. Overlong forms, surrogates and codes beyond
/// Unicode are not UTF-8.
Character first_of(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {.code = lead};
  const size_t bytes = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (lead < 0xC2 || lead > 0xF4 || text.size() < bytes) return {.code = lead, .is_utf8 = false};
  uint32_t code = lead & (0x7FU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {.code = lead, .is_utf8 = false};
    code = code << 6 | (byte(i) & 0x3FU);
  }
  const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
  if (code < kLeast[bytes] || code > 0x10FFFF || is_surrogate) {
    return {.code = lead, .is_utf8 = false};
  }
  return {.code = code, .bytes = bytes};
}

bool acts_on_terminals(uint32_t code) {
  const bool is_control = code < 0x20 || (code >= 0x7F && code <= 0x9F);
  const bool starts_line = code == 0x2028 || code == 0x2029;
  const bool turns = code == 0x061C || code == 0x200E || code == 0x200F ||
                     (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
  return is_control || starts_line || turns;
}

std::string escaped(std::string_view text, bool keeps_lines) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character next = first_of(text);
    if (!next.is_utf8) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", next.code);
    } else if (!acts_on_terminals(next.code) || (keeps_lines && next.code == '\n')) {
      out += text.substr(0, next.bytes);
    } else if (next.code == '\n' || next.code == '\t') {
      out += next.code == '\n' ? "\\n" : "\\t";
    } else {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", next.code);
    }
    text.remove_prefix(next.bytes);
  }
  return out;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const Character next = first_of(text);
    if (!next.is_utf8) return false;
    text.remove_prefix(next.bytes);
  }
  return true;
}

std::string shown(std::string_view text) { return escaped(text, false); }

std::string shown_lines(std::string_view text) { return escaped(text, true); }

}  // namespace shardlens
