#include "profiler/recording/peak_bands.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/strict_json.h"
#include "base/units.h"

namespace shardlens::profiler {

namespace {

std::string range_text(const PeakBand& band, const char* what) {
  if (band.is_exact()) return {};
  return fmt::format("{} to {} {}", bytes_text(band.least_bytes), bytes_text(band.most_bytes),
                     what);
}

nlohmann::ordered_json band_json(const PeakBand& band) {
  return {{"falling_bytes", band.falling_bytes},
          {"least_bytes", band.least_bytes},
          {"most_bytes", band.most_bytes}};
}

std::optional<PeakBand> read_band(const nlohmann::json& json) {
  const auto falling = whole_in(json, "falling_bytes");
  const auto least = whole_in(json, "least_bytes");
  const auto most = whole_in(json, "most_bytes");
  if (!falling || !least || !most) return std::nullopt;
  return PeakBand{.falling_bytes = *falling, .least_bytes = *least, .most_bytes = *most};
}

}  // namespace

const char* words_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::fits:
      return "it fits";
    case Verdict::fits_with_retries:
      return "it fits with retries";
    case Verdict::does_not_fit:
      return "it does not fit";
  }
  unreachable("verdict out of range");
}

void PeakBand::include(int64_t bytes) {
  least_bytes = std::min(least_bytes, bytes);
  most_bytes = std::max(most_bytes, bytes);
}

PeakBands exact_bands(int64_t allocated_bytes, int64_t reserved_bytes) {
  const auto exact = [](int64_t bytes) {
    return PeakBand{.falling_bytes = bytes, .least_bytes = bytes, .most_bytes = bytes};
  };
  return {.allocated = exact(allocated_bytes), .reserved = exact(reserved_bytes), .orders = 1};
}

std::string bands_text(const PeakBands& bands) {
  const std::string allocated = range_text(bands.allocated, "allocated");
  const std::string reserved = range_text(bands.reserved, "reserved");
  if (allocated.empty() && reserved.empty()) return {};
  return fmt::format("{}{}{} in {} orders", allocated,
                     allocated.empty() || reserved.empty() ? "" : ", ", reserved, bands.orders);
}

std::vector<std::string> doubts_of(const PeakBands& bands, Verdict seen) {
  const std::array<std::pair<Verdict, int>, 3> counts = {
      {{Verdict::does_not_fit, bands.failed_orders},
       {Verdict::fits_with_retries, bands.retried_orders},
       {Verdict::fits, bands.orders - bands.failed_orders - bands.retried_orders}}};
  std::vector<std::string> doubts;
  for (const auto& [verdict, count] : counts) {
    if (verdict == seen || count == 0) continue;
    doubts.push_back(fmt::format("in {} of {} orders of the driver's addresses {}", count,
                                 bands.orders, words_of(verdict)));
  }
  return doubts;
}

nlohmann::ordered_json bands_json(const std::optional<PeakBands>& bands) {
  if (!bands) return nullptr;
  return {{"orders", bands->orders},
          {"allocated", band_json(bands->allocated)},
          {"reserved", band_json(bands->reserved)}};
}

std::optional<PeakBands> read_bands(const nlohmann::json& json) {
  if (!json.is_object()) return std::nullopt;
  const auto orders = whole_in(json, "orders");
  const auto allocated = read_band(json.value("allocated", nlohmann::json()));
  const auto reserved = read_band(json.value("reserved", nlohmann::json()));
  if (!orders || !allocated || !reserved) return std::nullopt;
  return PeakBands{
      .allocated = *allocated, .reserved = *reserved, .orders = static_cast<int>(*orders)};
}

}  // namespace shardlens::profiler
