// The ranges of the peaks that one list of requests can lead to. Up to PyTorch 2.11 the addresses
// that the driver gives to segments decide which free block is taken, so the same program reserves
// more or less on another day. It also counts more or less as allocated: where less than 1 MiB of a
// large block is left over, the request gets the whole block. What was requested does not change.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/choice.h"

namespace shardlens::profiler {

/// Says whether a program fits the memory of a device.
enum class Verdict { fits, fits_with_retries, does_not_fit };
constexpr auto choice_words(Verdict) { return words("fits", "fits_with_retries", "does_not_fit"); }

/// Returns "it fits with retries".
const char* words_of(Verdict verdict);

/// A peak over several orders of addresses.
struct PeakBand {
  int64_t falling_bytes = 0;  // as on the null device: each new segment below all earlier ones
  int64_t least_bytes = 0;
  int64_t most_bytes = 0;

  bool operator==(const PeakBand&) const = default;
  bool is_exact() const { return least_bytes == most_bytes; }
  void include(int64_t bytes);
};

struct PeakBands {
  PeakBand allocated = {};
  PeakBand reserved = {};
  int orders = 0;          // 1: addresses decide nothing
  int failed_orders = 0;   // in which a request found no memory; their peaks end there
  int retried_orders = 0;  // of the others, in which the cache was given back to make room

  bool operator==(const PeakBands&) const = default;
};

/// Returns the bands of a program whose peaks do not depend on addresses.
PeakBands exact_bands(int64_t allocated_bytes, int64_t reserved_bytes);

/// Returns "7.10 GiB to 7.29 GiB reserved in 40 orders", or nothing if the peaks do not depend on
/// addresses.
std::string bands_text(const PeakBands& bands);

/// Says in how many orders of addresses a program fares otherwise than it did. The bands are those
/// within a device's memory.
std::vector<std::string> doubts_of(const PeakBands& bands, Verdict seen);

/// Returns {"orders": 40, "allocated": {"falling_bytes", "least_bytes", "most_bytes"}, "reserved":
/// {...}}; null for nothing.
nlohmann::ordered_json bands_json(const std::optional<PeakBands>& bands);

/// Reads what bands_json writes; nothing if it is anything else.
std::optional<PeakBands> read_bands(const nlohmann::json& json);

}  // namespace shardlens::profiler
