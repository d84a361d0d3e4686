#include "profiler/report/block_tracker.h"

#include <catch2/catch_test_macros.hpp>
#include <iostream>
#include <map>
#include <random>
#include <vector>

#include "profiler/recording/blocks.h"
#include "tests/support/model_allocator.h"

using namespace shardlens;
using namespace shardlens::profiler;
using shardlens::tests::ModelAllocator;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

bool is_balanced(const BlockTotals& totals) {
  return totals.allocated() - totals.unplaced + totals.split + totals.cached == totals.reserved;
}

bool agrees(const BlockTotals& totals, const ModelAllocator& model) {
  const auto expected = model.totals();
  return totals.requested == expected.asked && totals.allocated() == expected.given &&
         totals.reserved == expected.reserved && totals.split == expected.split &&
         totals.unplaced == 0 && is_balanced(totals);
}

int64_t random_size(std::mt19937_64& engine) {
  return static_cast<int64_t>(1 + engine() % (uint64_t{1} << (1 + engine() % 25)));
}

void follow_model(uint64_t seed, bool expandable) {
  CAPTURE(seed, expandable);
  std::mt19937_64 engine(seed);
  BlockTracker tracker;
  int64_t given = 0;
  ModelAllocator model(expandable, [&](const Event& event) { given = tracker.take(event); });
  std::vector<uint64_t> live;
  int64_t right = 0;
  constexpr int kSteps = 4000;
  for (int i = 0; i < kSteps; ++i) {
    bool is_given = true;
    if (live.empty() || (live.size() < 80 && engine() % 2 == 0)) {
      const auto stream = static_cast<uint16_t>(engine() % 2);
      live.push_back(model.alloc({.value = random_size(engine), .stream = stream}));
      is_given = given == model.given(live.back());
    } else {
      std::swap(live[engine() % live.size()], live.back());
      model.free(live.back());
      live.pop_back();
    }
    if (engine() % 200 == 0) model.empty_cache();
    if (is_given && agrees(tracker.totals(), model)) ++right;
  }
  CHECK(right == kSteps);
}

/// A new tracker that begins with the state of `tracker`.
BlockTracker restored(const BlockTracker& tracker, const std::map<uint64_t, int64_t>& asked) {
  BlockTracker copy;
  for (const Event& event : tracker.snapshot(1)) copy.take(event);
  for (const auto& [address, bytes] : asked) {
    copy.take({.address = address, .value = bytes});
  }
  return copy;
}

}  // namespace

TEST_CASE("requests are rounded, pooled and given segments as LibTorch does") {
  CHECK(rounded_request(0) == 512);
  CHECK(rounded_request(513) == 1024);
  CHECK(pool_of(kMiB) == Pool::small);
  CHECK(pool_of(kMiB + 512) == Pool::large);
  CHECK(segment_bytes(512) == 2 * kMiB);
  CHECK(segment_bytes(10 * kMiB - 512) == 20 * kMiB);
  CHECK(segment_bytes(10 * kMiB) == 10 * kMiB);
  CHECK(segment_bytes(10 * kMiB + 512) == 12 * kMiB);
  CHECK(is_split(2 * kMiB, 2 * kMiB - 512 - kMiB, false));
  CHECK_FALSE(is_split(3 * kMiB, 2 * kMiB, false));
  CHECK(is_split(3 * kMiB + 512, 2 * kMiB, false));
  CHECK(is_split(3 * kMiB, 2 * kMiB, true));
  CHECK(page_bytes(Pool::large) == 20 * kMiB);
}

TEST_CASE("blocks follow a plain caching allocator") {
  for (const uint64_t seed : {1, 2, 3}) {
    follow_model(seed, false);
    follow_model(seed, true);
  }
}

TEST_CASE("blocks stay balanced whatever the events are") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 engine(seed);
    BlockTracker tracker;
    int64_t balanced = 0;
    constexpr int kSteps = 5000;
    for (int i = 0; i < kSteps; ++i) {
      const bool segment = engine() % 4 == 0;
      const auto units = static_cast<int64_t>(engine() % 40);
      tracker.take({.address = engine() % 256 * 512 * 1024,
                    .value = units * (segment ? 2 * kMiB : 4096),
                    .label = static_cast<uint32_t>(engine() % 2),
                    .stream = static_cast<uint16_t>(engine() % 2),
                    .kind = engine() % 2 == 0 ? EventKind::alloc : EventKind::free,
                    .space = segment ? Space::segment : Space::device});
      const BlockTotals& totals = tracker.totals();
      const bool sane = totals.requested >= 0 && totals.split >= 0 && totals.cached >= 0 &&
                        totals.unplaced >= 0 && totals.reserved >= 0;
      if (sane && is_balanced(totals) && tracker.largest_fit_bytes(0) >= 0) ++balanced;
    }
    CHECK(balanced == kSteps);
  }
}

TEST_CASE("memory allocated outside all segments is counted as such") {
  BlockTracker tracker;
  CHECK(tracker.take({.address = 4096, .value = 700, .kind = EventKind::alloc}) == 1024);
  CHECK(tracker.totals().unplaced == 1024);
  CHECK(tracker.take({.address = 4096, .kind = EventKind::free}) == 1024);
  CHECK(tracker.totals() == BlockTotals{});
}

TEST_CASE("a tracker that begins late goes on like one that saw everything") {
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  std::mt19937_64 engine(seed);
  for (const bool expandable : {false, true}) {
    CAPTURE(seed, expandable);
    BlockTracker all, late;
    ModelAllocator model(expandable,
                         [&](const Event& event) { CHECK(all.take(event) == late.take(event)); });
    std::map<uint64_t, int64_t> asked;
    for (int i = 0; i < 3000; ++i) {
      if (asked.empty() || (asked.size() < 80 && engine() % 2 == 0)) {
        const int64_t bytes = random_size(engine);
        const auto stream = static_cast<uint16_t>(engine() % 2);
        asked[model.alloc({.value = bytes, .stream = stream})] = bytes;
      } else {
        const auto one = std::next(asked.begin(), static_cast<long>(engine() % asked.size()));
        model.free(one->first);
        asked.erase(one);
      }
      if (engine() % 200 == 0) model.empty_cache();
      if (i % 100 == 0) late = restored(all, asked);
      REQUIRE(late.totals() == all.totals());
      REQUIRE(late.largest_free_bytes() == all.largest_free_bytes());
    }
  }
}

TEST_CASE("a block that other streams still use is not free until it is released") {
  constexpr uint64_t kBase = uint64_t{1} << 40;
  BlockTracker tracker;
  tracker.take({.address = kBase, .value = 20 * kMiB, .space = Space::segment});
  for (const uint64_t at : {0, 4, 8}) {
    tracker.take({.address = kBase + at * kMiB, .value = 4 * kMiB - 100});
  }
  const auto tell = [&](EventKind kind, uint64_t at) {
    tracker.take({.address = kBase + at * kMiB, .kind = kind});
  };
  const auto held_totals = [](int64_t live, int64_t pending) {
    return BlockTotals{.requested = live * (4 * kMiB - 100),
                       .rounding = live * 100,
                       .pending = pending * 4 * kMiB,
                       .split = (5 - live - pending) * 4 * kMiB,
                       .reserved = 20 * kMiB};
  };
  tell(EventKind::free, 8);
  tell(EventKind::free, 4);  // merges with the next block, and is cut out again
  tell(EventKind::hold, 4);
  CHECK(tracker.totals() == held_totals(1, 1));
  CHECK(tracker.largest_free_bytes() == 12 * kMiB);
  tell(EventKind::hold, 8);  // not the one just freed
  CHECK(tracker.totals() == held_totals(1, 1));
  tell(EventKind::release, 4);
  CHECK(tracker.totals() == held_totals(1, 0));
  CHECK(tracker.largest_free_bytes() == 16 * kMiB);
  tell(EventKind::release, 4);
  CHECK(tracker.totals() == held_totals(1, 0));
}
