#include "profiler/program/steady_rise.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <span>

namespace shardlens::profiler {

namespace {

constexpr size_t kLeastRegular = 4;    // rises
constexpr size_t kLeastIrregular = 8;  // rises
constexpr size_t kMostSkipped = 64;    // rises at the start that may be left out
constexpr double kAsOften = 0.6;       // in one half, compared with the other

/// A moment at which the floor is higher than before, and by how much.
struct Rise {
  int64_t moment = 0;
  int64_t bytes = 0;
};
using Rises = std::span<const Rise>;

std::vector<Rise> rises_of(const std::vector<HeldBytes>& held) {
  std::vector<int64_t> floors(held.size());
  for (size_t i = held.size(); i-- > 0;) {
    floors[i] = i + 1 == held.size() ? held[i].bytes : std::min(held[i].bytes, floors[i + 1]);
  }
  std::vector<Rise> rises;
  int64_t before = 0;
  for (size_t i = 0; i < held.size(); ++i) {
    if (floors[i] > before) rises.push_back({held[i].moment, floors[i] - before});
    before = floors[i];
  }
  return rises;
}

/// Returns the moments between two rises if it is the same everywhere and the next rise was not due
/// yet; else 0.
int64_t regular_gap(Rises rises, int64_t last_moment) {
  if (rises.size() < kLeastRegular) return 0;
  const int64_t gap = rises[1].moment - rises[0].moment;
  for (size_t i = 2; i < rises.size(); ++i) {
    if (rises[i].moment - rises[i - 1].moment != gap) return 0;
  }
  return last_moment - rises.back().moment < gap ? gap : 0;
}

/// True for what is kept now and then until the end: see the note on a steady rise.
bool is_irregular_growth(Rises rises, int64_t last_moment) {
  if (rises.size() < kLeastIrregular) return false;
  int64_t largest_gap = 0;
  for (size_t i = 1; i < rises.size(); ++i) {
    largest_gap = std::max(largest_gap, rises[i].moment - rises[i - 1].moment);
  }
  if (last_moment - rises.back().moment > largest_gap) return false;
  const int64_t middle = (rises.front().moment + last_moment) / 2;
  const auto early =
      std::ranges::count_if(rises, [middle](const Rise& rise) { return rise.moment <= middle; });
  const auto late = std::ssize(rises) - early;
  const auto more = static_cast<double>(std::max(early, late));
  if (static_cast<double>(std::min(early, late)) < kAsOften * more) return false;
  std::set<int64_t> amounts;
  for (const Rise& rise : rises) amounts.insert(rise.bytes);
  return 2 * amounts.size() <= rises.size();
}

int64_t sum_of(Rises rises) {
  int64_t bytes = 0;
  for (const Rise& rise : rises) bytes += rise.bytes;
  return bytes;
}

/// True if half as much as the rises sum to was held and then given back: before the first of them,
/// or in between.
bool follows_teeth(const std::vector<HeldBytes>& held, Rises rises) {
  int64_t most = 0, fall = 0;
  for (const HeldBytes& one : held) {
    most = std::max(most, one.bytes);
    fall = std::max(fall, most - one.bytes);
  }
  return 2 * fall >= sum_of(rises);
}

SteadyRise described(Rises rises, int64_t every) {
  const int64_t moments = rises.back().moment - rises.front().moment;
  return {.first = rises.front().moment,
          .last = rises.back().moment,
          .every = every,
          .bytes_per_moment =
              static_cast<double>(sum_of(rises.subspan(1))) / static_cast<double>(moments)};
}

}  // namespace

std::optional<SteadyRise> find_steady_rise(const std::vector<HeldBytes>& held,
                                           int64_t last_moment) {
  const std::vector<Rise> all = rises_of(held);
  for (size_t skipped = 0; skipped <= kMostSkipped && skipped < all.size(); ++skipped) {
    const Rises rises = Rises(all).subspan(skipped);
    const bool is_long =
        rises.size() >= kLeastIrregular || 2 * (last_moment - rises.front().moment) >= last_moment;
    if (!is_long || rises.size() < kLeastRegular) return std::nullopt;
    if (follows_teeth(held, rises)) continue;
    if (const int64_t gap = regular_gap(rises, last_moment)) return described(rises, gap);
    if (is_irregular_growth(rises, last_moment)) return described(rises, 1);
  }
  return std::nullopt;
}

}  // namespace shardlens::profiler
