// Tests the allocator model where the answer can be worked out by hand. The comparison with the
// wheel's allocator is tests/profiler/null_device/allocator_model_test.cpp.
#include "planner/simulate/allocator/model.h"

#include <fmt/format.h>
#include <time.h>

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tests/support/allocator_storm.h"

using namespace shardlens;
using namespace shardlens::planner;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
using enum AllocatorEventKind;

AllocatorSettings settings_of(const std::string& text, int64_t capacity_bytes = kUnlimitedBytes) {
  AllocatorSettings settings = parse_allocator_settings(text);
  settings.capacity_bytes = capacity_bytes;
  return settings;
}

Allocation give(AllocatorModel& model, int64_t bytes, StreamIndex stream = 0) {
  const AllocationResult result = model.allocate(bytes, stream);
  REQUIRE(std::holds_alternative<Allocation>(result));
  return std::get<Allocation>(result);
}

AllocationFailure refuse(AllocatorModel& model, int64_t bytes) {
  const AllocationResult result = model.allocate(bytes, 0);
  REQUIRE(std::holds_alternative<AllocationFailure>(result));
  return std::get<AllocationFailure>(result);
}

int64_t reserved(const AllocatorModel& model) {
  return model.counters().all.reserved_bytes.current;
}
int64_t allocated(const AllocatorModel& model) {
  return model.counters().all.allocated_bytes.current;
}

/// Segment and offset: "1+512".
std::string place(const Allocation& given) {
  return fmt::format("{}+{}", given.segment, given.offset_bytes);
}

/// The time that this thread had a core.
double cpu_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

/// The time of each operation of a storm, which is drawn beforehand.
double storm_ns(const AllocatorSettings& settings, int64_t count) {
  std::vector<std::pair<tests::StormOperation, bool>> operations;
  tests::AllocatorStorm storm(5, {});
  std::vector<BlockId> blocks(2000);
  const auto apply = [&](AllocatorModel& model, const tests::StormOperation& operation) {
    if (operation.kind == tests::StormKind::free) model.free(blocks[operation.slot]);
    if (operation.kind != tests::StormKind::allocate) return true;
    const AllocationResult result = model.allocate(operation.bytes, operation.stream);
    if (const auto* given = std::get_if<Allocation>(&result)) blocks[operation.slot] = given->block;
    return std::holds_alternative<Allocation>(result);
  };
  AllocatorModel drawing(settings, default_and_pool_streams(4));
  while (static_cast<int64_t>(operations.size()) < count) {
    const tests::StormOperation operation = storm.next();
    const bool succeeded = apply(drawing, operation);
    if (!succeeded) storm.failed(operation);
    operations.emplace_back(operation, succeeded);
  }
  AllocatorModel model(settings, default_and_pool_streams(4));
  const double start = cpu_ns();
  for (const auto& [operation, succeeded] : operations) {
    if (apply(model, operation) != succeeded) throw std::logic_error("not the same again");
  }
  return (cpu_ns() - start) / static_cast<double>(count);
}

/// Runs a storm drawn from `seed`, and asserts the totals every hundred operations.
void check_storm(const AllocatorSettings& settings, uint64_t seed, int count) {
  tests::AllocatorStorm storm(seed, {});
  std::vector<BlockId> blocks(2000);
  AllocatorModel model(settings, default_and_pool_streams(4));
  for (int i = 0; i < count; ++i) {
    const tests::StormOperation operation = storm.next();
    if (operation.kind == tests::StormKind::free) model.free(blocks[operation.slot]);
    if (operation.kind == tests::StormKind::empty_cache) model.empty_cache();
    if (operation.kind == tests::StormKind::allocate) {
      const AllocationResult result = model.allocate(operation.bytes, operation.stream);
      const auto* given = std::get_if<Allocation>(&result);
      if (given != nullptr) blocks[operation.slot] = given->block;
      if (given == nullptr) storm.failed(operation);
    }
    if (i % 100 == 0) model.check_totals();
  }
  model.check_totals();
}

/// Steps of 40 blocks of a model: what forward keeps is freed in reverse by backward.
double training_ms(int64_t operations) {
  AllocatorModel model;
  const std::vector<int64_t> kept = {25 * kMiB, 75 * kMiB, 25 * kMiB, 1 << 19, 100 * kMiB, 4096};
  std::vector<BlockId> alive;
  int64_t done = 0;
  const double start = cpu_ns();
  const auto use = [&](int64_t bytes) {
    const BlockId block = std::get<Allocation>(model.allocate(bytes, 0)).block;
    done += 1;
    return block;
  };
  const auto free = [&](BlockId block) {
    model.free(block);
    done += 1;
  };
  while (done < operations) {
    for (int block = 0; block < 40; ++block) {
      for (const int64_t bytes : kept) {
        alive.push_back(use(bytes));
        free(use(bytes / 2 + 512));
      }
    }
    for (; !alive.empty(); alive.pop_back()) {
      const BlockId gradient = use(kept[alive.size() % kept.size()]);
      free(alive.back());
      free(gradient);
    }
  }
  return (cpu_ns() - start) / 1e6;
}

}  // namespace

TEST_CASE("small requests share 2 MiB, those up to 10 MiB 20 MiB, others have their own segment") {
  AllocatorModel model;
  CHECK(give(model, 1).block_bytes == 512);
  CHECK(reserved(model) == 2 * kMiB);
  CHECK(place(give(model, 513)) == "0+512");
  CHECK(place(give(model, kMiB)) == "0+1536");
  CHECK(place(give(model, kMiB + 1)) == "1+0");
  CHECK(reserved(model) == 22 * kMiB);
  CHECK(place(give(model, 10 * kMiB)) == "1+1049088");
  CHECK(place(give(model, 10 * kMiB)) == "2+0");
  CHECK(reserved(model) == 32 * kMiB);
  CHECK(give(model, 10 * kMiB + 1).block_bytes == 10 * kMiB + 512);
  CHECK(reserved(model) == 44 * kMiB);
}

TEST_CASE("a remainder of 1 MiB is handed out with the block, a larger one stays a block") {
  AllocatorModel model;
  const BlockId first = give(model, 9 * kMiB).block;  // of 20 MiB
  CHECK(give(model, 10 * kMiB).block_bytes == 11 * kMiB);
  CHECK(allocated(model) == 20 * kMiB);
  CHECK(model.counters().all.inactive_split.current == 0);
  model.free(first);
  CHECK(model.counters().all.inactive_split_bytes.current == 9 * kMiB);
  CHECK(give(model, 8 * kMiB - 512).block_bytes == 8 * kMiB - 512);
  CHECK(model.counters().all.inactive_split_bytes.current == kMiB + 512);
}

TEST_CASE("the smallest block that fits is taken, and of equal ones that with the lowest address") {
  AllocatorModel model;
  std::vector<BlockId> blocks;
  for (const int64_t bytes : {4096, 512, 1024, 512, 4096, 512, 1024, 512}) {
    blocks.push_back(give(model, bytes).block);
  }
  for (const size_t i : {6, 4, 2, 0}) model.free(blocks[i]);
  CHECK(place(give(model, 600)) == "0+4608");    // the first of 1024
  CHECK(place(give(model, 1024)) == "0+10752");  // the second
  CHECK(place(give(model, 1024)) == "0+0");      // the first of 4096, cut
  CHECK(place(give(model, 3584)) == "0+6144");
}

TEST_CASE("freed neighbours become one block, and the segment can go") {
  AllocatorModel model;
  std::vector<BlockId> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(give(model, 512).block);
  for (const size_t i : {0, 2, 1}) model.free(blocks[i]);
  CHECK(model.counters().all.inactive_split.current == 0);
  CHECK(model.counters().all.inactive_split.peak == 2);
  CHECK(reserved(model) == 2 * kMiB);
  model.empty_cache();
  CHECK(reserved(model) == 0);
  CHECK(model.counters().driver_frees == 1);
}

TEST_CASE("a block belongs to its stream, also when it is free") {
  AllocatorModel model({}, default_and_pool_streams(2));
  model.free(give(model, 512).block);
  CHECK(place(give(model, 512, 1)) == "1+0");
  CHECK(place(give(model, 512)) == "0+0");
}

TEST_CASE("a block that another stream used is kept until the next request") {
  AllocatorModel model({}, default_and_pool_streams(2));
  const BlockId block = give(model, 512).block;
  model.record_stream(block, 0);  // its own
  model.record_stream(block, 1);
  model.free(block);
  CHECK(allocated(model) == 0);
  CHECK(model.counters().all.active_bytes.current == 512);
  const Allocation other = give(model, 512);
  CHECK(place(other) == "0+0");
  CHECK(model.counters().all.active_bytes.current == 512);
  model.record_stream(other.block, 1);
  model.free(other.block);
  model.empty_cache();  // waits for the streams
  CHECK(reserved(model) == 0);
}

TEST_CASE("when the device is full the cache is freed before a request fails") {
  AllocatorModel model(settings_of("", 40 * kMiB));
  model.free(give(model, 20 * kMiB).block);
  const Allocation large = give(model, 30 * kMiB);
  CHECK(large.source == AllocationSource::after_retry);
  CHECK(model.counters().alloc_retries == 1);
  CHECK(reserved(model) == 30 * kMiB);
  CHECK(give(model, 10 * kMiB).source == AllocationSource::driver);
}

TEST_CASE("a failure says what was wanted and what was tried") {
  AllocatorModel model(settings_of("", 100 * kMiB));
  give(model, 50 * kMiB);
  model.free(give(model, 20 * kMiB).block);
  CHECK(model.take_outside(3 * kMiB));  // pages of 2 MiB
  const AllocationFailure failure = refuse(model, 50 * kMiB - 1);
  CHECK(failure.requested == 50 * kMiB - 1);
  CHECK(failure.rounded == 50 * kMiB);
  CHECK(failure.asked_of_driver == 50 * kMiB);
  CHECK(failure.device_free == 46 * kMiB);
  CHECK(failure.allocated == 50 * kMiB);
  CHECK(failure.reserved == 50 * kMiB);
  CHECK_FALSE(failure.allowed);
  CHECK(failure.released_oversize == 0);
  CHECK(failure.released_cache == 20 * kMiB);
  CHECK(model.counters().out_of_memory == 1);
  model.give_back_outside(3 * kMiB);
  CHECK(give(model, 50 * kMiB).source == AllocationSource::driver);
}

TEST_CASE("a memory fraction fails as a full device does") {
  AllocatorModel model(settings_of("per_process_memory_fraction:0.5", 100 * kMiB));
  give(model, 50 * kMiB);
  CHECK(refuse(model, 1).allowed == 50 * kMiB);
  model.set_memory_fraction(0.52);
  give(model, 1);
  model.set_memory_fraction(1);
  give(model, 48 * kMiB);
}

TEST_CASE("oversize blocks are neither cut nor given for less, and go first") {
  AllocatorModel model(settings_of("max_split_size_mb:40", 200 * kMiB));
  model.free(give(model, 80 * kMiB).block);
  model.free(give(model, 44 * kMiB).block);
  CHECK(model.counters().oversize_segments.current == 2);
  CHECK(place(give(model, 39 * kMiB)) == "2+0");  // below the limit: a segment of its own
  CHECK(give(model, 60 * kMiB + 512).block_bytes == 80 * kMiB);
  model.free(0);
  const Allocation given = give(model, 100 * kMiB);
  CHECK(given.source == AllocationSource::after_oversize);
  CHECK(model.counters().alloc_retries == 0);
}

TEST_CASE("garbage is what has been unused the longest") {
  AllocatorModel model(
      settings_of("garbage_collection_threshold:0.5,per_process_memory_fraction:0.9", 200 * kMiB));
  std::vector<SegmentIndex> freed;
  model.set_listener([&](const AllocatorEvent& event) {
    if (event.kind == segment_free) freed.push_back(event.segment);
  });
  const BlockId first = give(model, 20 * kMiB).block;
  const BlockId second = give(model, 22 * kMiB).block;
  model.free(first);
  give(model, 30 * kMiB);
  model.free(second);
  give(model, 30 * kMiB);
  CHECK(freed.empty());    // 72 MiB were reserved of the 90 that are still allowed
  give(model, 40 * kMiB);  // 12 too much: 20 that were passed over three times, not 22 twice
  CHECK(freed == std::vector<SegmentIndex>{0});
  give(model, 40 * kMiB);
  CHECK(freed == std::vector<SegmentIndex>{0, 1});
}

TEST_CASE("sizes are rounded up to divisions of a power of two") {
  AllocatorModel model(settings_of("roundup_power2_divisions:4"));
  CHECK(give(model, 1200 << 10).block_bytes == 1280 << 10);
  CHECK(give(model, 1280 << 10).block_bytes == 1280 << 10);
  CHECK(give(model, (1280 << 10) + 1).block_bytes == 1536 << 10);
  CHECK(give(model, 2048).block_bytes == 2048);
  CHECK(give(model, 2049).block_bytes == 2560);
  CHECK(give(model, 1100).block_bytes == 1536);  // below 4 blocks of 512 as always
}

TEST_CASE("expandable segments grow by pages, and give back whole ones") {
  AllocatorModel model(settings_of("expandable_segments:True", 200 * kMiB));
  const BlockId small = give(model, 1).block;
  CHECK(reserved(model) == 2 * kMiB);
  const BlockId large = give(model, 30 * kMiB).block;
  CHECK(reserved(model) == 42 * kMiB);
  const Allocation next = give(model, 15 * kMiB);  // 10 MiB are left of the pages there are
  CHECK(place(next) == "1+31457280");
  CHECK(reserved(model) == 62 * kMiB);
  CHECK(refuse(model, 180 * kMiB).device_free == 138 * kMiB);  // no page is free
  model.free(large);
  std::vector<AllocatorEvent> events;
  model.set_listener([&](const AllocatorEvent& event) { events.push_back(event); });
  model.empty_cache();
  REQUIRE(events.size() == 1);
  CHECK(events[0] == AllocatorEvent{.kind = segment_unmap, .segment = 1, .bytes = 20 * kMiB});
  model.free(small);
  model.free(next.block);
  model.empty_cache();
  CHECK(reserved(model) == 0);
  CHECK(model.device_free_bytes() == 200 * kMiB);
}

TEST_CASE("the listener hears what LibTorch traces") {
  AllocatorModel model({}, default_and_pool_streams(2));
  std::vector<AllocatorEvent> events;
  model.set_listener([&](const AllocatorEvent& event) { events.push_back(event); });
  const BlockId block = give(model, 100, 1).block;
  model.record_stream(block, 0);
  model.free(block);
  model.empty_cache();
  const auto event = [](AllocatorEventKind kind, int64_t bytes, bool is_split = false) {
    return AllocatorEvent{.kind = kind, .stream = 1, .bytes = bytes, .is_split = is_split};
  };
  CHECK(events == std::vector{event(segment_alloc, 2 * kMiB), event(alloc, 100, true),
                              event(free_requested, 100), event(free_completed, 100),
                              event(segment_free, 2 * kMiB)});
}

TEST_CASE("misuse of the allocator model is distinguished from full devices") {
  AllocatorModel model;
  CHECK_THROWS_AS(model.allocate(0, 0), std::invalid_argument);
  CHECK_THROWS_AS(model.allocate((int64_t{1} << 60) + 1, 0), std::invalid_argument);
  CHECK_THROWS_AS(model.allocate(1, 1), std::logic_error);
  CHECK_THROWS_AS(model.free(0), std::logic_error);
  const BlockId block = give(model, 1).block;
  model.free(block);
  CHECK_THROWS_AS(model.free(block), std::logic_error);
  CHECK_THROWS_AS(model.record_stream(block, 0), std::logic_error);
  CHECK_THROWS_AS(model.set_memory_fraction(1.1), std::invalid_argument);
  CHECK_THROWS_AS(model.give_back_outside(1), std::logic_error);
  CHECK_THROWS_AS(AllocatorModel({}, {}), std::invalid_argument);
  CHECK_THROWS_AS(AllocatorModel({}, {{}, {}}), std::invalid_argument);
  CHECK_THROWS_AS(AllocatorModel({.capacity_bytes = -1}), std::invalid_argument);
  CHECK_THROWS_AS(default_and_pool_streams(34), std::invalid_argument);
}

TEST_CASE("the totals of the allocator model are the sums over its blocks, whatever happens") {
  const uint64_t seed = Catch::getSeed();
  fmt::print("seed {}\n", seed);
  for (const std::string text :
       {"", "expandable_segments:True", "max_split_size_mb:64", "roundup_power2_divisions:4",
        "garbage_collection_threshold:0.6,per_process_memory_fraction:0.8"}) {
    INFO(text);
    CHECK_NOTHROW(check_storm(settings_of(text, int64_t{1} << 30), seed, 20'000));
  }
}

TEST_CASE("the allocator model takes a fraction of a microsecond an operation") {
  // Both limits are generous, for sanitizers and for busy machines.
  for (const std::string text : {"", "expandable_segments:True", "max_split_size_mb:64"}) {
    const double ns = storm_ns(settings_of(text, int64_t{4} << 30), 200'000);
    CAPTURE(text);
    CHECK(ns < 10'000);
  }
  const double ms = training_ms(100'000);
  CHECK(ms < 1000);
}

TEST_CASE("any counter that disagrees with the blocks is found") {
  AllocatorModel model;
  give(model, 3 * kMiB);
  const Allocation freed = give(model, 2 * kMiB);
  give(model, 1000);
  model.free(freed.block);
  const AllocatorTotals totals = model.totals();
  CHECK_NOTHROW(check_agree(model.counters(), totals));
  for (AllocatorStat PoolCounters::*counter :
       {&PoolCounters::allocations, &PoolCounters::segments, &PoolCounters::active,
        &PoolCounters::inactive_split, &PoolCounters::allocated_bytes,
        &PoolCounters::reserved_bytes, &PoolCounters::active_bytes,
        &PoolCounters::inactive_split_bytes, &PoolCounters::requested_bytes}) {
    for (PoolCounters AllocatorCounters::*pool :
         {&AllocatorCounters::all, &AllocatorCounters::small, &AllocatorCounters::large}) {
      AllocatorCounters wrong = model.counters();
      (wrong.*pool.*counter).current += 1;
      CHECK_THROWS_AS(check_agree(wrong, totals), std::logic_error);
    }
  }
  AllocatorTotals lost = totals;
  --lost.large.listed_blocks;
  CHECK_THROWS_AS(check_agree(model.counters(), lost), std::logic_error);
}

TEST_CASE("a block is in the list of free blocks once, and only while it is free") {
  FreeBlocks list;
  AllocatorBlock block{.bytes = 512};
  CHECK_THROWS_AS(list.erase(block), std::logic_error);
  list.insert(block);
  CHECK_THROWS_AS(list.insert(block), std::logic_error);
  block.is_allocated = true;
  CHECK_THROWS_AS(list.erase(block), std::logic_error);
  block.is_allocated = false;
  block.bytes = 1024;
  CHECK_THROWS_AS(list.erase(block), std::logic_error);
  AllocatorBlock used{.bytes = 512, .is_allocated = true};
  CHECK_THROWS_AS(list.insert(used), std::logic_error);
}
