#include "profiler/report/reserved_parts.h"

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <iostream>
#include <map>
#include <random>
#include <string>
#include <variant>
#include <vector>

#include "planner/simulate/allocator/model.h"
#include "tests/support/allocator_storm.h"

using namespace shardlens;
using namespace shardlens::profiler;
using planner::Allocation;
using planner::AllocatorEvent;
using planner::AllocatorEventKind;
using planner::AllocatorModel;
using planner::AllocatorSettings;
using tests::AllocatorStorm;
using tests::StormKind;
using tests::StormOperation;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr uint64_t kBase = uint64_t{1} << 40;
constexpr uint32_t kStreams = 3;

ReservedSegment segment_at(uint64_t mib, int64_t bytes) {
  return {.address = kBase + mib * kMiB, .bytes = bytes, .pool = Pool::large};
}
UsedBlock block_at(uint64_t mib, int64_t mib_given, uint32_t place) {
  return {.address = kBase + mib * kMiB,
          .given_bytes = mib_given * kMiB,
          .asked_bytes = mib_given * kMiB - 100,
          .step = static_cast<int64_t>(place),
          .place = place};
}

int64_t sum_of(const ReservedParts& parts) {
  return parts.requested + parts.rounding + parts.pending + parts.free();
}

/// A storm of requests to the modelled allocator, and what it holds, by its events.
class ModelRun {
 public:
  ModelRun(uint64_t seed, bool expandable)
      : seed_(seed),
        model_({.capacity_bytes = 3000 * kMiB, .expandable_segments = expandable},
               planner::default_and_pool_streams(kStreams)),
        storm_(seed, {.streams = kStreams, .most_live = 60}) {
    model_.set_listener([this, expandable](const AllocatorEvent& event) {
      if (event.kind == AllocatorEventKind::segment_free ||
          event.kind == AllocatorEventKind::segment_unmap) {
        remove(address_of(event.segment, event.offset_bytes), event.bytes);
      }
      const bool is_new = event.kind == AllocatorEventKind::segment_alloc ||
                          event.kind == AllocatorEventKind::segment_map;
      if (is_new) add(event, expandable);
    });
  }

  void run(int operations) {
    for (int i = 0; i < operations; ++i) {
      const StormOperation operation = storm_.next();
      if (!apply(operation)) storm_.failed(operation);
    }
  }

  ReservedParts parts(const ReservedRequest& request) const {
    std::vector<ReservedSegment> segments;
    for (const auto& [address, segment] : segments_) segments.push_back(segment);
    std::vector<UsedBlock> blocks;
    for (const auto& [slot, block] : live_) blocks.push_back(block.used);
    return reserved_parts(segments, blocks, request);
  }

  AllocatorModel& model() { return model_; }

 private:
  struct Live {
    planner::BlockId id = 0;
    UsedBlock used;
  };

  static uint64_t address_of(planner::SegmentIndex segment, int64_t offset) {
    return (uint64_t{segment} + 1) * (uint64_t{1} << 44) + static_cast<uint64_t>(offset);
  }

  void add(const AllocatorEvent& event, bool expandable) {
    const uint64_t address = address_of(event.segment, event.offset_bytes);
    const bool is_small = expandable ? event.bytes % (20 * kMiB) != 0 : event.bytes <= 2 * kMiB;
    segments_[address] = {.address = address,
                          .bytes = event.bytes,
                          .stream = static_cast<uint16_t>(event.stream),
                          .pool = is_small ? Pool::small : Pool::large,
                          .expandable = expandable};
  }

  /// Removes a range, which may begin and end within the ranges that were mapped.
  void remove(uint64_t address, int64_t bytes) {
    const uint64_t end = address + static_cast<uint64_t>(bytes);
    for (auto at = segments_.begin(); at != segments_.end();) {
      const ReservedSegment old = at->second;
      const uint64_t old_end = old.address + static_cast<uint64_t>(old.bytes);
      if (old_end <= address || old.address >= end) {
        ++at;
        continue;
      }
      at = segments_.erase(at);
      if (old.address < address) put(old, old.address, address);
      if (old_end > end) put(old, end, old_end);
    }
  }
  void put(ReservedSegment like, uint64_t begin, uint64_t end) {
    like.address = begin;
    like.bytes = static_cast<int64_t>(end - begin);
    segments_[begin] = like;
  }

  bool apply(const StormOperation& operation) {
    if (operation.kind == StormKind::allocate) return allocate(operation);
    if (operation.kind == StormKind::free) {
      model_.free(live_.at(operation.slot).id);
      live_.erase(operation.slot);
    }
    if (operation.kind == StormKind::empty_cache) model_.empty_cache();
    if (operation.kind == StormKind::take_outside) return model_.take_outside(operation.bytes);
    return true;  // what is taken outside stays: the rest is about reserved memory
  }

  bool allocate(const StormOperation& operation) {
    const auto result = model_.allocate(operation.bytes, operation.stream);
    const auto* const given = std::get_if<Allocation>(&result);
    if (given == nullptr) return false;
    live_[operation.slot] = {.id = given->block,
                             .used = {.address = address_of(given->segment, given->offset_bytes),
                                      .given_bytes = given->block_bytes,
                                      .asked_bytes = operation.bytes,
                                      .place = static_cast<uint32_t>(operation.slot % 7)}};
    return true;
  }

  uint64_t seed_;
  AllocatorModel model_;
  AllocatorStorm storm_;
  std::map<uint64_t, ReservedSegment> segments_;
  std::map<size_t, Live> live_;
};

uint64_t first_seed() {
  const char* const text = std::getenv("SHARDLENS_PARTS_SEED");
  return text == nullptr ? std::random_device{}() : std::stoull(text);
}

/// True if the request is served without a change of what is reserved.
bool is_served(AllocatorModel& model, int64_t bytes, uint32_t stream) {
  const int64_t before = model.counters().driver_allocations;
  const auto result = model.allocate(bytes, stream);
  return std::holds_alternative<Allocation>(result) &&
         model.counters().driver_allocations == before;
}

/// Compares one random state with the allocator's own counters and answers. Returns what is wrong.
std::string difference_of(uint64_t seed) {
  const bool expandable = seed % 2 == 0;
  const int operations = static_cast<int>(20 + seed % 280);
  const ReservedRequest request{.bytes = static_cast<int64_t>(seed % 90) * kMiB,
                                .stream = static_cast<uint16_t>(seed % kStreams)};
  ModelRun run(seed, expandable);
  run.run(operations);
  const ReservedParts parts = run.parts(request);
  const auto& all = run.model().counters().all;
  if (sum_of(parts) != parts.reserved) return "the parts do not sum to reserved";
  if (parts.reserved != all.reserved_bytes.current) return "reserved differs";
  if (parts.given() != all.allocated_bytes.current) return "given differs";
  if (parts.requested != all.requested_bytes.current) return "requested differs";
  if (parts.unplaced != 0) return "a block lies outside";
  int64_t held = 0;
  for (const SegmentHolder& holder : parts.holders) held += holder.free;
  if (held != parts.held.bytes) return "the holders do not hold what is held";

  ModelRun other(seed, expandable);
  other.run(operations);
  if (parts.largest_fit > 0 && !is_served(run.model(), parts.largest_fit, request.stream)) {
    return "the largest request that fits does not";
  }
  if (is_served(other.model(), parts.largest_fit + 1, request.stream)) return "a larger one fits";

  ModelRun emptied(seed, expandable);
  emptied.run(operations);
  emptied.model().empty_cache();
  const int64_t left = emptied.model().counters().all.reserved_bytes.current;
  if (parts.reserved - parts.returnable() != left) return "another part is given back";
  return {};
}

}  // namespace

TEST_CASE("the parts of 10,000 random states agree with the modelled allocator") {
  const uint64_t first = first_seed();
  std::cout << "seed " << first << "\n";
  int right = 0, wrong = 0;
  for (uint64_t seed = first; seed < first + 10'000 && wrong < 5; ++seed) {
    const std::string difference = difference_of(seed);
    if (difference.empty()) {
      ++right;
      continue;
    }
    ++wrong;
    FAIL_CHECK("seed " << seed << ": " << difference);
  }
  CHECK(right == 10'000);
}

TEST_CASE("free memory is divided by what keeps it from the request") {
  ReservedSegment of_graph = segment_at(1000, 30 * kMiB);
  of_graph.private_pool = 4;
  ReservedSegment of_stream = segment_at(2000, 40 * kMiB);
  of_stream.stream = 1;
  const std::vector<ReservedSegment> segments = {of_stream, segment_at(0, 20 * kMiB),
                                                 segment_at(100, 50 * kMiB), of_graph};
  UsedBlock pending = block_at(4, 1, 0);
  pending.is_pending = true;
  const std::vector<UsedBlock> blocks = {block_at(1000, 10, 3), block_at(12, 8, 7), pending,
                                         block_at(9000, 2, 1)};
  const ReservedParts parts = reserved_parts(segments, blocks, {.bytes = 60 * kMiB});
  CHECK(parts.reserved == 140 * kMiB);
  CHECK(parts.requested == 18 * kMiB - 200);
  CHECK(parts.rounding == 200);
  CHECK(parts.pending == kMiB);
  CHECK(parts.unplaced == 2 * kMiB);
  CHECK(parts.held ==
        FreePieces{.bytes = 11 * kMiB, .pieces = 2, .largest = 7 * kMiB, .too_small = 11 * kMiB});
  CHECK(parts.whole == FreePieces{.bytes = 50 * kMiB,
                                  .pieces = 1,
                                  .largest = 50 * kMiB,
                                  .too_small = 50 * kMiB,
                                  .returnable = 50 * kMiB});
  CHECK(parts.other_streams.bytes == 40 * kMiB);
  CHECK(parts.other_streams.returnable == 40 * kMiB);
  CHECK(parts.private_pools.bytes == 20 * kMiB);
  CHECK(parts.private_pools.returnable == 0);
  REQUIRE(parts.pools.size() == 1);
  CHECK(parts.pools[0].number == 4);
  CHECK(parts.pools[0].places == std::vector<uint32_t>{3});
  REQUIRE(parts.holders.size() == 1);
  CHECK(parts.holders[0].places == std::vector<uint32_t>{7});
  CHECK(parts.holders[0].blocks == 2);
  CHECK(parts.holders[0].free == 11 * kMiB);
  CHECK(parts.largest_fit == 50 * kMiB);
}

TEST_CASE("a request in a private pool is served by that pool only") {
  ReservedSegment own = segment_at(0, 20 * kMiB);
  own.private_pool = 0;
  const std::vector<ReservedSegment> segments = {own, segment_at(100, 50 * kMiB)};
  CHECK(reserved_parts(segments, {}, {.private_pool = 0}).largest_fit == 20 * kMiB);
  CHECK(reserved_parts(segments, {}, {}).largest_fit == 50 * kMiB);
  CHECK(reserved_parts(segments, {}, {.private_pool = 1}).largest_fit == 0);
}
