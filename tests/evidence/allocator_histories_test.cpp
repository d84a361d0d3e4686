// Compares AllocatorModel with PyTorch's allocator on real GPUs, event by event. docs/evidence.md
// says what the histories are and has the table that is printed here.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <utility>
#include <vector>

#include "planner/simulate/allocator/peak_bands.h"
#include "planner/simulate/allocator/recorded_requests.h"
#include "profiler/recording/blocks.h"
#include "profiler/recording/profile.h"
#include "tests/evidence/gpu_history.h"
#include "tests/evidence/gpu_replay.h"

using namespace shardlens;
using namespace shardlens::tests;

namespace {

const std::filesystem::path kOwnFolder = SHARDLENS_SOURCE_DIR "/tests/fixtures/gpu/h100";

/// Those that other people have published.
std::vector<GpuHistory> histories() {
  const std::optional<std::filesystem::path> folder = evidence_folder();
  if (!folder) SKIP("no ../shared/evidence beside the repository: see docs/evidence.md");
  return read_gpu_histories(*folder / "allocator");
}

void check_equal(const Comparison& seen) {
  CHECK(seen.placed_alike == seen.allocations);
  CHECK(seen.segments_alike == seen.segments);
  CHECK(seen.model_segments == seen.segments);
  CHECK(seen.model_freed_segments == seen.freed_segments);
  CHECK(seen.releases_alike == seen.releases);
  CHECK(seen.model_retries == seen.retries);
  CHECK(seen.failures_alike == seen.failures);
  CHECK(seen.reserved_unlike == 0);
  CHECK(seen.model_reserved_bytes == seen.reserved_bytes);
  CHECK(seen.ends_alike);
}

bool has_failure(const GpuHistory& history) {
  return std::ranges::count(history.events, GpuEventKind::oom, &GpuEvent::kind) > 0;
}

/// Writes a history's events as the recorder would have.
class HistoryEvents {
 public:
  explicit HistoryEvents(const GpuHistory& history) : history_(history) {}

  std::vector<profiler::Event> events() && {
    for (const GpuEvent& event : history_.events) take(event);
    return std::move(events_);
  }

 private:
  using Kind = profiler::EventKind;

  void take(const GpuEvent& event) {
    switch (event.kind) {
      case GpuEventKind::alloc:
        return add(event, Kind::alloc, profiler::Space::device);
      case GpuEventKind::free_requested:
        add(event, Kind::free, profiler::Space::device);
        add({}, Kind::hold, profiler::Space::device);
        return;
      case GpuEventKind::free_completed:
        return add(event, Kind::release, profiler::Space::device);
      case GpuEventKind::segment_alloc:
        return add(event, Kind::alloc, profiler::Space::segment);
      case GpuEventKind::segment_free:
      case GpuEventKind::segment_free_cache:
        return add(event, Kind::free, profiler::Space::segment);
      case GpuEventKind::oom:
        return add(event, Kind::out_of_memory, profiler::Space::device);
      default:
        FAIL("a recording of this kind of event is not replayed");
    }
  }

  /// Returns the number of the private pool that the stream stands for.
  int32_t pool_of(planner::StreamIndex stream) const {
    const auto found = std::ranges::find(history_.private_streams, stream);
    if (found == history_.private_streams.end()) return profiler::kNoPrivatePool;
    return static_cast<int32_t>(found - history_.private_streams.begin());
  }

  void add(const GpuEvent& event, Kind kind, profiler::Space space) {
    const bool is_segment = space == profiler::Space::segment;
    const int32_t pool = is_segment ? pool_of(event.stream) : profiler::kNoPrivatePool;
    REQUIRE(std::in_range<uint16_t>(event.stream));
    events_.push_back({.address = event.address,
                       .value = event.bytes,
                       .action = profiler::action_of_pool(pool),
                       .stream = static_cast<uint16_t>(event.stream),
                       .kind = kind,
                       .space = space});
  }

  const GpuHistory& history_;
  std::vector<profiler::Event> events_;
};

void print(const GpuHistory& history, const Comparison& seen, const Comparison& falling) {
  fmt::print("{:12} {:28} {:20} {:5} of {:5} {:7} {:4} of {:4} {:3} of {:2} {:14} {:+}\n",
             history.file.substr(0, history.file.find('.')), history.gpu, history.torch,
             seen.placed_alike, seen.allocations, falling.placed_alike, seen.segments_alike,
             seen.segments, seen.model_retries, seen.retries, seen.model_reserved_bytes,
             falling.model_reserved_bytes - seen.reserved_bytes);
}

}  // namespace

TEST_CASE("evidence: the model places all blocks where the allocators of real GPUs did") {
  const std::vector<GpuHistory> all = histories();
  CHECK(all.size() == 28);
  fmt::print("{:12} {:28} {:20} {:14} {:7} {:12} {:9} {:14} {}\n", "history", "GPU", "PyTorch",
             "placed alike", "falling", "segments", "retries", "reserved", "falling");
  int64_t allocations = 0;
  int64_t falling_alike = 0;
  for (const GpuHistory& history : all) {
    INFO(history.file);
    const Comparison seen = GpuReplay(history, true).run();
    const Comparison falling = GpuReplay(history, false).run();
    check_equal(seen);
    print(history, seen, falling);
    allocations += seen.allocations;
    falling_alike += falling.placed_alike;
  }
  fmt::print("all: {} allocations; with falling addresses {} placed alike\n", allocations,
             falling_alike);
}

TEST_CASE("the model places all blocks where our own H100 did") {
  for (const GpuHistory& history : read_gpu_histories(kOwnFolder / "allocator")) {
    if (!history.is_followed()) continue;
    INFO(history.file);
    const Comparison seen = GpuReplay(history, true).run();
    print(history, seen, GpuReplay(history, false).run());
    check_equal(seen);
  }
}

TEST_CASE("evidence: what real GPUs reserved lies in the band over orders of addresses") {
  for (const GpuHistory& history : histories()) {
    INFO(history.file);
    const planner::Replay replay(requests_of(history));
    const profiler::PeakBands bands = planner::peaks_over_orders(replay, history.settings);
    const int64_t reserved_bytes = GpuReplay(history, true).run().reserved_bytes;
    CHECK(bands.reserved.least_bytes <= reserved_bytes);
    CHECK(bands.reserved.most_bytes >= reserved_bytes);
    // Where the GPU ran out of memory, other addresses could have left room.
    CHECK((bands.failed_orders > 0) == has_failure(history));
  }
}

TEST_CASE("a recording's requests and addresses lead to the peaks of our own H100") {
  int compared = 0;
  for (const GpuHistory& history : read_gpu_histories(kOwnFolder / "allocator")) {
    const bool is_replayed = history.start.empty() && history.is_followed() &&
                             !history.settings.expandable_segments && !has_failure(history);
    if (!is_replayed) continue;
    INFO(history.file);
    planner::RecordedRequests requests;
    for (const profiler::Event& event : HistoryEvents(history).events()) requests.take(event);
    CHECK_FALSE(requests.ran_out());
    CHECK_FALSE(requests.has_expandable_segments());
    const planner::SegmentAddresses addresses = requests.addresses();
    const int64_t retries = history.alloc_retries.value_or(0);
    const planner::Replay replay(std::move(requests).history(retries > 0));
    const planner::ReplayResult result = replay.run(history.settings, addresses);
    const Comparison seen = GpuReplay(history, true).run();
    CHECK(result.peak_reserved_bytes == seen.reserved_bytes);
    CHECK(result.retries == retries);
    ++compared;
  }
  CHECK(compared >= 8);
}
