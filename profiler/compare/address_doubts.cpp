#include "profiler/compare/address_doubts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace shardlens::profiler {

namespace {

/// Returns by how much a peak grows in those orders of addresses in which it is least and most, if
/// this answers the gate otherwise than `growth` does; nothing if it does not.
std::string doubt_about(const RankDiff& rank, PeakBand PeakBands::*peak, double growth,
                        double limit_percent, std::string_view name) {
  if (!rank.a.bands || !rank.b.bands) return {};
  const PeakBand &a = *rank.a.bands.*peak, &b = *rank.b.bands.*peak;
  const double at_least = Pair{a.least_bytes, b.least_bytes}.growth_percent();
  const double at_most = Pair{a.most_bytes, b.most_bytes}.growth_percent();
  const double least = std::min({growth, at_least, at_most});
  const double most = std::max({growth, at_least, at_most});
  if ((least > limit_percent) == (most > limit_percent)) return {};
  return fmt::format("{} of rank {} grows by {} to {}, by the driver's addresses", name,
                     rank.b.rank, growth_percent_text(least, 2), growth_percent_text(most, 2));
}

}  // namespace

std::vector<std::string> address_doubts(const RankDiff& rank, double limit_percent) {
  std::vector<std::string> doubts = {doubt_about(
      rank, &PeakBands::allocated, rank.gated_allocated_percent(), limit_percent, "the peak")};
  if (rank.reserved) {
    doubts.push_back(doubt_about(rank, &PeakBands::reserved, rank.gated_reserved_percent(),
                                 limit_percent, "reserved memory"));
  }
  std::erase(doubts, "");
  return doubts;
}

}  // namespace shardlens::profiler
