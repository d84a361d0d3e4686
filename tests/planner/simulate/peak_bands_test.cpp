#include "planner/simulate/allocator/peak_bands.h"

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

#include "planner/simulate/allocator/recorded_requests.h"
#include "profiler/recording/blocks.h"
#include "profiler/recording/profile.h"

using namespace shardlens;
using namespace shardlens::planner;
using profiler::PeakBand;
using profiler::PeakBands;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr AllocatorRequestKind kFree = AllocatorRequestKind::free;
constexpr AllocatorRequestKind kEmptyCache = AllocatorRequestKind::empty_cache;

AllocatorSettings plain_settings() { return {.free_block_order = models::FreeBlockOrder::address}; }

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
  std::iota(order.begin(), order.end(), 1);
  std::pair<int64_t, int64_t> range = {INT64_MAX, 0};
  bool has_more = false;
  do {
    const int64_t bytes = replay
                              .run(plain_settings(),
                                   [&](SegmentIndex segment) {
                                     has_more = has_more || segment >= order.size();
                                     return segment < order.size() ? order[segment] : segment + 1;
                                   })
                              .peak_reserved_bytes;
    range = {std::min(range.first, bytes), std::max(range.second, bytes)};
  } while (std::ranges::next_permutation(order).found);
  if (has_more) return {};
  return range;
}

PeakBand narrow(int64_t bytes) { return {bytes, bytes, bytes}; }

void check_wider(const PeakBand& band, const PeakBand& other) {
  CHECK(band.falling_bytes == other.falling_bytes);
  CHECK(band.least_bytes <= other.least_bytes);
  CHECK(band.most_bytes >= other.most_bytes);
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
    const PeakBand band = peaks_over_orders(replay, plain_settings(), 600, engine()).reserved;
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
    const ReplayResult plain = replay.run(plain_settings());
    const PeakBands one = peaks_over_orders(replay, plain_settings(), 1);
    CHECK(one.allocated == narrow(plain.peak_allocated_bytes));
    CHECK(one.reserved == narrow(plain.peak_reserved_bytes));
    PeakBands last = one;
    for (const int orders : {2, 5, 20}) {
      const PeakBands bands = peaks_over_orders(replay, plain_settings(), orders);
      check_wider(bands.allocated, last.allocated);
      check_wider(bands.reserved, last.reserved);
      CHECK(bands == peaks_over_orders(replay, plain_settings(), orders));
      last = bands;
    }
  }
}

TEST_CASE("allocated has a band where blocks that are not cut are larger than the request") {
  constexpr int64_t kHalf = kMiB / 2;
  const Replay replay(AllocatorHistory{.requests = {
                                           {.bytes = 11 * kMiB, .block = 0},
                                           {.bytes = 11 * kMiB + kHalf, .block = 1},
                                           {.block = 0, .kind = kFree},
                                           {.block = 1, .kind = kFree},
                                           {.bytes = 11 * kMiB + kHalf, .block = 2},
                                           {.bytes = 11 * kMiB, .block = 3},
                                       }});
  const PeakBands bands = peaks_over_orders(replay, plain_settings(), 20);
  CHECK(bands.reserved == narrow(24 * kMiB));
  CHECK(bands.allocated.least_bytes <= bands.allocated.most_bytes);
  CHECK(bands.allocated.most_bytes <= bands.reserved.most_bytes);
}

TEST_CASE("orders in which a request finds no memory are counted") {
  const Replay replay(AllocatorHistory{
      .requests = {{.bytes = 20 * kMiB, .block = 0}, {.bytes = 30 * kMiB, .block = 1}}});
  AllocatorSettings settings = plain_settings();
  settings.capacity_bytes = 40 * kMiB;
  CHECK(peaks_over_orders(replay, settings, 7) == PeakBands{.allocated = narrow(20 * kMiB),
                                                            .reserved = narrow(20 * kMiB),
                                                            .orders = 7,
                                                            .failed_orders = 7});
  CHECK_THROWS_AS(peaks_over_orders(replay, settings, 0), std::invalid_argument);
}

TEST_CASE("a replay goes on from a layout, and its requests name blocks in order") {
  const SegmentLayout segment = {
      .address = 4096,
      .pool = profiler::Pool::large,
      .blocks = {{.bytes = 12 * kMiB, .requested_bytes = 12 * kMiB, .is_held = true},
                 {.bytes = 8 * kMiB}}};
  const auto peak = [&](std::vector<AllocatorRequest> requests) {
    const Replay replay(AllocatorHistory{.start = {segment}, .requests = std::move(requests)});
    const PeakBand band = peaks_over_orders(replay, plain_settings(), 4).reserved;
    CHECK(band.least_bytes == band.most_bytes);
    return band.falling_bytes;
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

TEST_CASE("a private pool shares no segment, and keeps its memory while a graph uses it") {
  using profiler::EventKind;
  using profiler::Space;
  RecordedRequests requests;
  const auto take = [&](uint64_t address, int64_t bytes, EventKind kind, Space space,
                        int32_t pool = profiler::kNoPrivatePool) {
    requests.take({.address = address,
                   .value = bytes,
                   .action = profiler::action_of_pool(pool),
                   .kind = kind,
                   .space = space});
  };
  const auto use = [&](uint64_t address, int64_t bytes, int32_t pool) {
    take(address, bytes, EventKind::alloc, Space::segment, pool);
    take(address, bytes, EventKind::alloc, Space::device);
    take(address, bytes, EventKind::free, Space::device);
  };
  const auto give_back = [&](uint64_t address, int64_t bytes) {
    take(address, bytes, EventKind::free, Space::segment);
  };
  constexpr uint64_t kApart = uint64_t{1} << 32;
  use(1 * kApart, 20 * kMiB, profiler::kNoPrivatePool);
  use(2 * kApart, 20 * kMiB, 0);
  give_back(1 * kApart, 20 * kMiB);  // the graph's memory stays
  use(3 * kApart, 30 * kMiB, profiler::kNoPrivatePool);
  give_back(2 * kApart, 20 * kMiB);  // the graph is gone
  give_back(3 * kApart, 30 * kMiB);
  use(4 * kApart, 40 * kMiB, profiler::kNoPrivatePool);
  const SegmentAddresses addresses = requests.addresses();
  const Replay replay(std::move(requests).history(false));
  CHECK(replay.run(plain_settings(), addresses).peak_reserved_bytes == 50 * kMiB);
  CHECK(peaks_over_orders(replay, plain_settings(), 20).reserved == narrow(50 * kMiB));
}
