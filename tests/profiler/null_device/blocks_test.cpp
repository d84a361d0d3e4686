// Compares the arithmetic of blocks with LibTorch's own caching allocator on the null device: what
// it reports after every allocation and free is what BlockTracker derives from the trace.
#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <iostream>
#include <random>
#include <utility>
#include <vector>

#include "profiler/report/block_tracker.h"
#include "profiler/report/reserved_parts.h"
#include "tests/profiler/null_device/case_process.h"

using namespace shardlens;
using namespace shardlens::profiler;
namespace allocator = c10::cuda::CUDACachingAllocator;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr size_t kAll = 0;  // the statistics of both pools

/// Takes the allocator's trace as the recorder writes it.
struct Trace {
  BlockTracker tracker;
  std::vector<cudaStream_t> streams;
  int64_t from_driver = 0;  // bytes of the last segment taken; 0: none since it was set
  int64_t unmaps = 0;

  void take(const allocator::TraceEntry& entry) {
    using Entry = allocator::TraceEntry;
    Event event{.address = entry.addr_, .value = static_cast<int64_t>(entry.size_)};
    while (event.stream < streams.size() && streams[event.stream] != entry.stream_) ++event.stream;
    switch (entry.action_) {
      case Entry::ALLOC:
        event.kind = EventKind::alloc;
        break;
      case Entry::FREE_REQUESTED:
        event.kind = EventKind::free;
        break;
      case Entry::SEGMENT_MAP:
        event.label = 1;
        [[fallthrough]];
      case Entry::SEGMENT_ALLOC:
        event.kind = EventKind::alloc;
        event.space = Space::segment;
        from_driver = event.value;
        break;
      case Entry::SEGMENT_UNMAP:
        event.label = 1;
        ++unmaps;
        [[fallthrough]];
      case Entry::SEGMENT_FREE:
        event.kind = EventKind::free;
        event.space = Space::segment;
        break;
      default:
        return;
    }
    tracker.take(event);
  }
};

Trace& trace() {
  static Trace* trace = [] {
    at::empty({1}, at::dtype(at::kByte).device(at::kCUDA));  // makes the allocator
    allocator::emptyCache();
    auto* made = new Trace;  // the allocator keeps its tracker forever
    made->streams = {c10::cuda::getDefaultCUDAStream(0).stream(),
                     c10::cuda::getStreamFromPool(false, 0).stream()};
    allocator::attachAllocatorTraceTracker(
        [made](const allocator::TraceEntry& entry) { made->take(entry); });
    return made;
  }();
  return *trace;
}

bool is_followed() {
  const auto stats = allocator::getDeviceStats(0);
  const BlockTotals& totals = trace().tracker.totals();
  return stats.allocated_bytes[kAll].current == totals.allocated() &&
         stats.requested_bytes[kAll].current == totals.requested &&
         stats.reserved_bytes[kAll].current == totals.reserved &&
         stats.inactive_split_bytes[kAll].current == totals.split && totals.unplaced == 0 &&
         totals.allocated() + totals.split + totals.cached == totals.reserved;
}

/// All magnitudes from 1 B to 64 MiB, sometimes at a boundary of the arithmetic.
int64_t random_size(std::mt19937_64& engine) {
  const std::array edges = {kSmallRequestBytes, kOwnSegmentBytes,
                            kLargeSegmentBytes, kLargeSegmentBytes - kLargeRemainderBytes,
                            kBlockBytes,        kMiB * 19};
  if (engine() % 8 == 0) {
    return edges[engine() % edges.size()] + static_cast<int64_t>(engine() % 3) - 1;
  }
  return static_cast<int64_t>(1 + engine() % (uint64_t{1} << (1 + engine() % 26)));
}

struct Counts {
  int64_t steps = 0;
  int64_t followed = 0;
  int64_t segments = 0;
  int64_t segments_as_said = 0;
  int64_t failures = 0;
};

void* try_alloc(int64_t bytes, size_t stream, Counts& counts) {
  try {
    return allocator::raw_alloc_with_stream(static_cast<size_t>(bytes), trace().streams[stream]);
  } catch (const c10::OutOfMemoryError&) {
    ++counts.failures;
    return nullptr;
  }
}

Counts storm(uint64_t seed, int64_t steps, bool expandable) {
  std::mt19937_64 engine(seed);
  std::vector<void*> live;
  Counts counts;
  for (; counts.steps < steps; ++counts.steps) {
    if (engine() % 4096 == 0) allocator::emptyCache();
    const bool frees = !live.empty() && (live.size() > 300 || engine() % 100 < 47);
    if (frees) {
      std::swap(live[engine() % live.size()], live.back());
      allocator::raw_delete(live.back());
      live.pop_back();
    } else {
      const int64_t bytes = random_size(engine);
      trace().from_driver = 0;
      if (void* block = try_alloc(bytes, engine() % 2, counts)) live.push_back(block);
      if (trace().from_driver != 0 && !expandable) {
        ++counts.segments;
        if (trace().from_driver == segment_bytes(rounded_request(bytes))) {
          ++counts.segments_as_said;
        }
      }
    }
    if (is_followed()) ++counts.followed;
  }
  for (void* block : live) allocator::raw_delete(block);
  CHECK(is_followed());
  return counts;
}

void follow(uint64_t seed, bool expandable) {
  constexpr int64_t kSteps = 20'000;
  CAPTURE(seed);
  const Counts counts = storm(seed, kSteps, expandable);
  CHECK(counts.followed == kSteps);
  CHECK(counts.segments_as_said == counts.segments);
  CHECK((expandable || counts.segments > 50));
  std::cout << "seed " << seed << ": " << kSteps << " steps, " << counts.segments << " segments, "
            << trace().unmaps << " unmapped, " << counts.failures << " out of memory\n";
}

}  // namespace

TEST_CASE("blocks follow the caching allocator") {
  trace();
  for (const uint64_t seed : {1, 2, 3}) follow(seed, false);
}

TEST_CASE("a request that fits is served without the driver, and one byte more is not") {
  std::mt19937_64 engine(11);
  trace();
  Counts counts;
  std::vector<void*> live;
  int64_t checked = 0;
  for (int i = 0; i < 3000; ++i) {
    live.push_back(try_alloc(random_size(engine), 0, counts));
    std::swap(live[engine() % live.size()], live.back());
    if (i % 2 == 0) allocator::raw_delete(std::exchange(live.back(), nullptr));
    std::erase(live, nullptr);
    const int64_t fits = trace().tracker.largest_fit_bytes(0);
    if (fits == 0) continue;
    trace().from_driver = 0;
    void* served = try_alloc(fits, 0, counts);
    CHECK(trace().from_driver == 0);
    allocator::raw_delete(served);
    allocator::raw_delete(try_alloc(fits + 1, 0, counts));
    CHECK(trace().from_driver > 0);
    ++checked;
  }
  for (void* block : live) allocator::raw_delete(block);
  CHECK(checked > 2000);
  CHECK(is_followed());
}

namespace {

/// The account of what PyTorch's allocator holds, from its own snapshot.
ReservedParts parts_of_snapshot(const ReservedRequest& request) {
  std::vector<ReservedSegment> segments;
  std::vector<UsedBlock> blocks;
  for (const auto& segment : allocator::snapshot().segments) {
    const auto id = segment.owner_private_pool_id;
    const auto& streams = trace().streams;
    const auto stream = std::find(streams.begin(), streams.end(), segment.stream);
    segments.push_back({.address = segment.address,
                        .bytes = static_cast<int64_t>(segment.total_size),
                        .private_pool = id.first == 0 && id.second == 0 ? kNoPrivatePool : 0,
                        .stream = static_cast<uint16_t>(stream - streams.begin()),
                        .pool = segment.is_large ? Pool::large : Pool::small,
                        .expandable = segment.is_expandable});
    uint64_t address = segment.address;
    for (const auto& block : segment.blocks) {
      const auto bytes = static_cast<int64_t>(block.size);
      if (block.active) {
        blocks.push_back({.address = address,
                          .given_bytes = bytes,
                          .asked_bytes = static_cast<int64_t>(block.requested_size),
                          .is_pending = !block.allocated});
      }
      address += block.size;
    }
  }
  return reserved_parts(segments, blocks, request);
}

/// Compares 10,000 states of PyTorch's allocator with the account of each. Returns how many agree.
int64_t right_accounts(uint64_t seed) {
  std::mt19937_64 engine(seed);
  Counts counts;
  std::vector<void*> live;
  int64_t right = 0;
  for (int i = 0; i < 10'000; ++i) {
    live.push_back(try_alloc(random_size(engine), engine() % 2, counts));
    std::swap(live[engine() % live.size()], live.back());
    if (i % 2 == 0 || live.size() > 80) {
      allocator::raw_delete(std::exchange(live.back(), nullptr));
    }
    std::erase(live, nullptr);
    const ReservedParts parts = parts_of_snapshot({});
    const auto stats = allocator::getDeviceStats(0);
    const int64_t sum = parts.given() + parts.pending + parts.free();
    bool agrees = sum == parts.reserved && parts.reserved == stats.reserved_bytes[kAll].current &&
                  parts.given() + parts.pending == stats.active_bytes[kAll].current;
    if (parts.largest_fit > 0) {
      trace().from_driver = 0;
      void* const served = try_alloc(parts.largest_fit, 0, counts);
      agrees = agrees && served != nullptr && trace().from_driver == 0;
      if (served != nullptr) allocator::raw_delete(served);
    }
    if (i % 100 == 99) {
      const int64_t expected = parts.reserved - parts.returnable();
      allocator::emptyCache();
      agrees = agrees && allocator::getDeviceStats(0).reserved_bytes[kAll].current == expected;
    } else if (i % 10 == 9) {
      trace().from_driver = 0;
      void* const more = try_alloc(parts.largest_fit + 1, 0, counts);
      agrees = agrees && trace().from_driver > 0;
      if (more != nullptr) allocator::raw_delete(more);
    }
    if (agrees) ++right;
  }
  for (void* block : live) allocator::raw_delete(block);
  return right;
}

}  // namespace

TEST_CASE("the account of reserved memory is what PyTorch's allocator answers") {
  trace();
  const uint64_t seed = std::random_device{}();
  std::cout << "seed " << seed << "\n";
  CHECK(right_accounts(seed) == 10'000);
}

TEST_CASE("account expandable segments", "[.process]") {
  trace();
  CHECK(right_accounts(7) == 10'000);
  std::cout << "> accounted\n";
}

TEST_CASE("the account of expandable segments is what PyTorch's allocator answers") {
  CHECK(tests::output_of_case("account expandable segments",
                              "PYTORCH_ALLOC_CONF=expandable_segments:True") == "accounted\n");
}

TEST_CASE("follow expandable segments", "[.process]") {
  trace();
  follow(4, true);
  CHECK(trace().unmaps > 0);
  std::cout << "> followed\n";
}

TEST_CASE("follow little memory", "[.process]") {
  trace();
  const Counts counts = storm(5, 10'000, false);
  CHECK(counts.followed == counts.steps);
  CHECK(counts.failures > 0);
  std::cout << "> followed\n";
}

TEST_CASE("blocks follow expandable segments") {
  CHECK(tests::output_of_case("follow expandable segments",
                              "PYTORCH_ALLOC_CONF=expandable_segments:True") == "followed\n");
}

TEST_CASE("blocks follow an allocator that runs out of memory") {
  CHECK(tests::output_of_case("follow little memory", "SHARDLENS_NULL_CAPACITY=1000000000") ==
        "followed\n");
}
