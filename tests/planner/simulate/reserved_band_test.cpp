#include "planner/simulate/allocator/reserved_band.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <numeric>
#include <optional>
#include <random>
#include <stdexcept>
#include <utility>
#include <vector>

using namespace shardlens;
using namespace shardlens::planner;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr AllocatorRequestKind kFree = AllocatorRequestKind::free;
constexpr AllocatorRequestKind kEmptyCache = AllocatorRequestKind::empty_cache;

AllocatorSettings plain_settings() { return {.prefers_older_blocks = false}; }

/// Draws requests of sizes that share segments, so that it matters which free block is taken.
AllocatorHistory random_history(std::mt19937_64& engine, int count, int64_t step_bytes) {
  AllocatorHistory history;
  std::vector<uint32_t> live;
  uint32_t blocks = 0;
  for (int i = 0; i < count; ++i) {
    if (live.empty() || engine() % 100 < 55) {
      const int64_t bytes = static_cast<int64_t>(1 + engine() % 5) * step_bytes;
      history.requests.push_back({.bytes = bytes, .block = blocks});
      live.push_back(blocks++);
      continue;
    }
    std::swap(live[engine() % live.size()], live.back());
    history.requests.push_back({.block = live.back(), .kind = kFree});
    live.pop_back();
    if (engine() % 12 == 0) history.requests.push_back({.kind = kEmptyCache});
  }
  return history;
}

/// Returns least and most reserved over all orders of four segments; nothing if there are more.
std::optional<std::pair<int64_t, int64_t>> brute_force(const Replay& replay) {
  std::array<uint64_t, 4> order{};
  std::iota(order.begin(), order.end(), 0);
  std::pair<int64_t, int64_t> range = {INT64_MAX, 0};
  bool has_more = false;
  do {
    const int64_t bytes = replay
                              .run(plain_settings(),
                                   [&](SegmentIndex segment) {
                                     has_more = has_more || segment >= order.size();
                                     return segment < order.size() ? order[segment] : segment;
                                   })
                              .peak_reserved_bytes;
    range = {std::min(range.first, bytes), std::max(range.second, bytes)};
  } while (std::ranges::next_permutation(order).found);
  if (has_more) return {};
  return range;
}

}  // namespace

TEST_CASE("with enough orders the band of reserved is that over all orders of segments") {
  const uint64_t seed = Catch::getSeed();
  fmt::print("seed {}\n", seed);
  std::mt19937_64 engine(seed);
  int compared = 0;
  int wide = 0;
  for (int i = 0; i < 4000 && (compared < 100 || wide < 5); ++i) {
    const Replay replay(random_history(engine, 30, 2 * kMiB));
    const auto range = brute_force(replay);
    if (!range) continue;
    const ReservedBand band = reserved_over_orders(replay, plain_settings(), 600, engine());
    CAPTURE(seed, i);
    REQUIRE(std::pair(band.least_bytes, band.most_bytes) == *range);
    ++compared;
    wide += band.least_bytes < band.most_bytes ? 1 : 0;
  }
  CHECK(compared >= 100);
  CHECK(wide >= 5);
}

TEST_CASE("the band holds the plain replay, and grows with the number of orders") {
  const uint64_t seed = Catch::getSeed();
  fmt::print("seed {}\n", seed);
  std::mt19937_64 engine(seed);
  for (int i = 0; i < 20; ++i) {
    CAPTURE(seed, i);
    const Replay replay(random_history(engine, 2000, 100 << 10));
    const int64_t plain = replay.run(plain_settings()).peak_reserved_bytes;
    const ReservedBand one = reserved_over_orders(replay, plain_settings(), 1);
    CHECK(one == ReservedBand{.rising_bytes = plain, .least_bytes = plain, .most_bytes = plain});
    ReservedBand last = one;
    for (const int orders : {2, 5, 20}) {
      const ReservedBand band = reserved_over_orders(replay, plain_settings(), orders);
      CHECK(band.rising_bytes == plain);
      CHECK(band.least_bytes <= last.least_bytes);
      CHECK(band.most_bytes >= last.most_bytes);
      CHECK(band == reserved_over_orders(replay, plain_settings(), orders));
      last = band;
    }
  }
}

TEST_CASE("orders in which a request finds no memory are counted") {
  const Replay replay(AllocatorHistory{
      .requests = {{.bytes = 20 * kMiB, .block = 0}, {.bytes = 30 * kMiB, .block = 1}}});
  AllocatorSettings settings = plain_settings();
  settings.capacity_bytes = 40 * kMiB;
  CHECK(reserved_over_orders(replay, settings, 7) ==
        ReservedBand{20 * kMiB, 20 * kMiB, 20 * kMiB, 7});
  CHECK_THROWS_AS(reserved_over_orders(replay, settings, 0), std::invalid_argument);
}

TEST_CASE("a replay goes on from a layout, and its requests name blocks in order") {
  const SegmentLayout segment = {
      .address = 4096,
      .pool = profiler::Pool::large,
      .blocks = {{.bytes = 12 * kMiB, .requested_bytes = 12 * kMiB, .is_held = true},
                 {.bytes = 8 * kMiB}}};
  const auto peak = [&](std::vector<AllocatorRequest> requests) {
    const Replay replay(AllocatorHistory{.start = {segment}, .requests = std::move(requests)});
    const ReservedBand band = reserved_over_orders(replay, plain_settings(), 4);
    CHECK(band.least_bytes == band.most_bytes);
    return band.rising_bytes;
  };
  CHECK(peak({}) == 20 * kMiB);
  CHECK(peak({{.bytes = 8 * kMiB, .block = 1}}) == 20 * kMiB);
  CHECK(peak({{.bytes = 12 * kMiB, .block = 1}}) == 32 * kMiB);
  CHECK(peak({{.block = 0, .kind = kFree}, {.bytes = 20 * kMiB, .block = 1}}) == 20 * kMiB);
  CHECK(peak({{.block = 0, .kind = kFree},
              {.kind = kEmptyCache},
              {.bytes = 30 * kMiB, .block = 1}}) == 30 * kMiB);
  CHECK_THROWS_AS(peak({{.bytes = 512, .block = 2}}), std::invalid_argument);
  CHECK_THROWS_AS(peak({{.block = 1, .kind = kFree}}), std::invalid_argument);
  CHECK_THROWS_AS(peak({{.block = 0, .kind = kFree}, {.block = 0, .kind = kFree}}),
                  std::invalid_argument);
}
