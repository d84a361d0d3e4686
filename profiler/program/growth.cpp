#include "profiler/program/growth.h"

#include <fmt/format.h>

#include <cmath>

#include "base/shown.h"
#include "base/units.h"

namespace shardlens::profiler {

namespace {

/// Returns "1,200" of 1234: a forecast has two digits.
std::string about_text(int64_t steps) {
  int64_t unit = 1;
  while (steps / unit >= 100) unit *= 10;
  std::string digits = std::to_string((steps + unit / 2) / unit * unit);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string rate_text(const Growth& growth) {
  const auto every = static_cast<double>(growth.every);
  const std::string bytes = bytes_text(std::llround(growth.bytes_per_step * every));
  const std::string_view unit = growth.round.empty() ? "step" : "round";
  if (growth.every == 1) return fmt::format("{} a {}", bytes, unit);
  return fmt::format("{} every {} {}s", bytes, growth.every, unit);
}

std::string places_text(const std::vector<GrowingPlace>& places) {
  const GrowingPlace& first = places.front();
  std::string text = first.label.empty() ? "no line is known" : shown(first.label);
  if (!first.caller.empty()) text += ", called by " + shown(first.caller);
  if (places.size() == 1) return text;
  return text + fmt::format(", and {} more", places.size() - 1);
}

}  // namespace

std::string growth_text(const Growth& growth) {
  std::string text = fmt::format("grows by {} from {} {} on: {}", rate_text(growth),
                                 growth.round.empty() ? "step" : "round", growth.from_step,
                                 places_text(growth.places));
  if (!growth.round.empty()) {
    text += fmt::format("; a round begins at {}", shown(growth.round));
  }
  if (!growth.full_after_steps) return text;
  return text + fmt::format("; full after about {} {}s", about_text(*growth.full_after_steps),
                            growth.round.empty() ? "step" : "round");
}

}  // namespace shardlens::profiler
