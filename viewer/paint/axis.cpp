#include "viewer/paint/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace shardlens::viewer {

namespace {

double round_binary_step(double least) {
  const double power = std::exp2(std::ceil(std::log2(std::max(1.0, least))));
  return power;
}

double round_decimal_step(double least) {
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= least * (1 - 1e-9)) return factor * power;
  }
  return 10 * power;
}

std::string decimal(double value, double step) {
  const int places = std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 12);
  return fmt::format("{:.{}f}", std::abs(value) < step * 1e-6 ? 0.0 : value, places);
}

std::string time_text(double seconds, double step) {
  if (step < 1e-6) return decimal(seconds * 1e9, step * 1e9) + " ns";
  if (step < 1e-3) return decimal(seconds * 1e6, step * 1e6) + " \u00b5s";
  if (step < 0.5) return decimal(seconds * 1e3, step * 1e3) + " ms";
  return decimal(seconds, step) + " s";
}

std::string step_text(double value, double step, const Range& extent) {
  if (value <= extent.begin) return "start";
  if (value >= extent.end) return "end";
  return decimal(value, step);
}

std::string tick_text(Alignment alignment, double value, double step, const Range& extent) {
  switch (alignment) {
    case Alignment::time:
      return time_text(value, step);
    case Alignment::step:
    case Alignment::phase:
      return step_text(value, step, extent);
    case Alignment::event:
      return decimal(value, step);
    case Alignment::normalised:
      return decimal(100 * value, 100 * step) + " %";
  }
  return "";
}

}  // namespace

std::string short_bytes(double bytes, double step) {
  constexpr std::array units = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  double size = std::abs(bytes);
  while (size >= 1024 && unit + 1 < units.size()) {
    size /= 1024;
    ++unit;
  }
  int places = size >= 100 || size == std::floor(size) ? 0 : size >= 10 ? 1 : 2;
  const double unit_step = step / std::pow(1024, static_cast<double>(unit));
  // A step of 128 MiB gives "1920 MiB", not a rounded "1.88 GiB".
  const bool is_rounded = std::abs(100 * size - std::round(100 * size)) > 1e-6;
  if (is_rounded && unit > 0 && unit_step * 1024 >= 1 && unit_step < 1 && size < 9) {
    return fmt::format("{}{:.0f} {}", bytes < 0 ? "-" : "", 1024 * size, units[unit - 1]);
  }
  if (unit_step > 0 && unit_step < std::pow(10, -places) && size != std::floor(size)) {
    places = std::min(6, static_cast<int>(std::ceil(-std::log10(unit_step))));
  }
  return fmt::format("{}{:.{}f} {}", bytes < 0 ? "-" : "", size, places, units[unit]);
}

std::vector<Tick> byte_ticks(double top_bytes, int most, double bottom_bytes) {
  std::vector<Tick> ticks;
  if (bottom_bytes <= 0) ticks.push_back({0, "0"});
  if (top_bytes < 1) return ticks;
  const double step = round_binary_step((top_bytes - bottom_bytes) / std::max(1, most));
  const double first = std::max(1.0, std::ceil(bottom_bytes / step));
  for (double at = first * step; at <= top_bytes; at += step) {
    ticks.push_back({at, short_bytes(at, step)});
  }
  return ticks;
}

std::vector<Tick> signed_byte_ticks(double top_bytes, int most) {
  std::vector<Tick> ticks = {{0, "0"}};
  if (top_bytes < 1) return ticks;
  const double step = round_binary_step(top_bytes / std::max(1, most / 2));
  for (double at = step; at <= top_bytes; at += step) {
    ticks.push_back({at, "+" + short_bytes(at)});
    ticks.push_back({-at, short_bytes(-at)});
  }
  return ticks;
}

std::vector<Tick> x_ticks(Alignment alignment, const Range& range, const Range& extent,
                          double most) {
  std::vector<Tick> ticks;
  if (!(range.length() > 0)) return ticks;
  double step = round_decimal_step(range.length() / std::max(1.0, most));
  if (alignment == Alignment::event) step = std::max(1.0, step);
  const double first = std::ceil(range.begin / step - 1e-9);
  for (int i = 0; i <= most + 1; ++i) {
    const double at = (first + i) * step;
    if (at > range.end + step * 1e-9) break;
    ticks.push_back({at, tick_text(alignment, at, step, extent)});
  }
  return ticks;
}

}  // namespace shardlens::viewer
