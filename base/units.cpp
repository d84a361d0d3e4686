#include "base/units.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <stdexcept>

namespace shardlens {

namespace {

struct Unit {
  std::string_view name;
  double bytes;
};

constexpr std::array kUnits = {Unit{"TiB", 0x1p40}, Unit{"GiB", 0x1p30}, Unit{"MiB", 0x1p20},
                               Unit{"KiB", 0x1p10}, Unit{"TB", 1e12},    Unit{"GB", 1e9},
                               Unit{"MB", 1e6},     Unit{"KB", 1e3},     Unit{"kB", 1e3},
                               Unit{"B", 1},        Unit{"", 1}};

constexpr double kMostBytes = 0x1p60;

[[noreturn]] void refuse(std::string_view text) {
  throw std::invalid_argument(
      fmt::format("{}: not a size; give bytes, or a number with KiB, MiB, GiB or TiB", text));
}

}  // namespace

std::string bytes_text(int64_t bytes) {
  const double size = std::abs(static_cast<double>(bytes));  // the least int64_t has no negative
  for (const Unit& unit : kUnits) {
    if (!unit.name.ends_with("iB") || size < unit.bytes) continue;
    return fmt::format("{:.2f} {}", static_cast<double>(bytes) / unit.bytes, unit.name);
  }
  return fmt::format("{} B", bytes);
}

int64_t parse_bytes(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) refuse(text);
  std::string_view name = text.substr(static_cast<size_t>(end - text.data()));
  while (name.starts_with(' ')) name.remove_prefix(1);
  for (const Unit& unit : kUnits) {
    if (name != unit.name) continue;
    const double bytes = std::floor(number * unit.bytes);
    if (!(bytes >= 1 && bytes <= kMostBytes)) refuse(text);
    return static_cast<int64_t>(bytes);
  }
  refuse(text);
}

}  // namespace shardlens
