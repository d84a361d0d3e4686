// Makes the same run twice: what our recorder exports for memory_viz is what LibTorch's own history
// recording says, entry by entry and block by block. Not compared are times, frames, and the bytes
// that a free block was last asked for.
#include <ATen/ATen.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <torch/csrc/cuda/memory_snapshot.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "base/document/read_document.h"
#include "profiler/exchange/export_memory_viz.h"
#include "profiler/file/reader.h"
#include "profiler/recorder/recorder.h"
#include "runtime/execute/device.h"
#include "runtime/execute/executor.h"
#include "tests/profiler/null_device/case_process.h"
#include "tests/support/idle_communicator.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::profiler;
using namespace shardlens::runtime;
namespace allocator = c10::cuda::CUDACachingAllocator;

namespace {

constexpr const char* kWhole = "PYTORCH_ALLOC_CONF=expandable_segments:False";
constexpr const char* kExpandable = "PYTORCH_ALLOC_CONF=expandable_segments:True";

/// The two recordings of one run, as pickles.
struct Snapshots {
  std::string ours;
  std::string theirs;
};

/// Both record `work`, from the first byte on.
Snapshots record(const std::function<void(c10::Device, Recorder&)>& work) {
  const tests::TemporaryFolder folder;
  runtime::keep_backward_on_this_thread();
  const c10::Device device = runtime::open_device({.kind = DeviceKind::null, .gpu = "h200"}, 0);
  REQUIRE(allocator::getDeviceStats(0).reserved_bytes[0].current == 0);
  torch::cuda::_record_memory_history("all", std::nullopt, "python");
  Recorder recorder({.path = folder.file("rank0.slp"), .header = {}, .on_cuda = true});
  work(device, recorder);
  const std::string theirs = torch::cuda::_memory_snapshot_pickled();
  CHECK(recorder.close().lost_events == 0);
  std::ostringstream out;
  export_memory_viz(read_profile(folder.file("rank0.slp")), *pickle_writer(out));
  return {.ours = out.str(), .theirs = theirs};
}

/// A snapshot in words, one line for each entry of the trace, each segment and each block. Streams
/// are numbered in the order of appearance, since theirs are addresses.
class Lines {
 public:
  explicit Lines(const std::string& pickle) : document_(read_pickle(pickle)) {
    const Value snapshot(document_);
    REQUIRE(snapshot["device_traces"].size() == 1);
    const Value entries = snapshot["device_traces"].at(0);
    for (size_t i = 0; i < entries.size(); ++i) add_entry(entries.at(i));
    const Value segments = snapshot["segments"];
    for (size_t i = 0; i < segments.size(); ++i) add_segment(segments.at(i));
  }

  std::vector<std::string> trace;
  std::vector<std::string> segments;  // each with its blocks

  size_t count(const std::string& action) const {
    const auto found = counts_.find(action);
    return found == counts_.end() ? 0 : found->second;
  }

 private:
  void add_entry(Value entry) {
    const std::string action(entry["action"].text());
    if (action == "snapshot") return;  // ours ends with one, for the viewer
    ++counts_[action];
    const char* const address = action == "oom" ? "device_free" : "addr";
    std::ostringstream line;
    line << action << ' ' << entry[address].integer(-1) << ' ' << entry["size"].integer(-1)
         << " stream " << number_of_stream(entry["stream"].integer(-1));
    trace.push_back(line.str());
  }

  void add_segment(Value segment) {
    std::ostringstream line;
    for (const char* key :
         {"device", "address", "total_size", "allocated_size", "active_size", "requested_size"}) {
      line << key << ' ' << segment[key].integer(-1) << ' ';
    }
    line << segment["segment_type"].text() << ' ' << segment["is_expandable"].boolean()
         << " stream " << number_of_stream(segment["stream"].integer(-1));
    segments.push_back(line.str());
    for (size_t i = 0; i < segment["blocks"].size(); ++i) add_block(segment["blocks"].at(i));
  }

  void add_block(Value block) {
    const bool free = block["state"].text() == "inactive";
    std::ostringstream line;
    line << block["state"].text() << ' ' << block["address"].integer(-1) << ' '
         << block["size"].integer(-1) << ' ' << (free ? 0 : block["requested_size"].integer(-1));
    segments.push_back(line.str());
  }

  size_t number_of_stream(int64_t stream) {
    return streams_.try_emplace(stream, streams_.size()).first->second;
  }

  Document document_;
  std::map<int64_t, size_t> streams_;
  std::map<std::string, size_t> counts_;
};

void check_equal(const std::vector<std::string>& ours, const std::vector<std::string>& theirs) {
  const auto [our, their] = std::ranges::mismatch(ours, theirs);
  INFO("line " << our - ours.begin() << " of " << ours.size() << " and " << theirs.size());
  INFO("ours: " << (our == ours.end() ? "-" : *our));
  INFO("theirs: " << (their == theirs.end() ? "-" : *their));
  const bool equal = our == ours.end() && their == theirs.end();
  CHECK(equal);
}

/// The frees whose block another stream still used.
int64_t late_completions(const std::vector<std::string>& trace) {
  int64_t late = 0;
  for (size_t i = 1; i < trace.size(); ++i) {
    if (!trace[i].starts_with("free_completed")) continue;
    const bool at_once = trace[i - 1].starts_with("free_requested") &&
                         trace[i - 1].substr(14) == trace[i].substr(14);
    if (!at_once) ++late;
  }
  return late;
}

std::vector<std::string> without_completions(std::vector<std::string> trace) {
  std::erase_if(trace, [](const std::string& line) { return line.starts_with("free_completed"); });
  return trace;
}

// --- runs ----------------------------------------------------------------------------------------

/// Magnitudes from 1 B to 64 MiB.
int64_t random_bytes(std::mt19937_64& engine) {
  return static_cast<int64_t>(1 + engine() % (uint64_t{1} << (1 + engine() % 26)));
}

/// Allocations and frees on three streams, some that fail, and sometimes all cached memory is
/// returned. If `shares`, blocks are used on other streams, too, so that their frees must wait.
/// Returns what is alive at the end, when no free waits.
std::vector<at::Tensor> storm(uint64_t seed, bool shares, c10::Device device) {
  std::mt19937_64 engine(seed);
  const std::vector<c10::cuda::CUDAStream> streams = {c10::cuda::getDefaultCUDAStream(0),
                                                      c10::cuda::getStreamFromPool(false, 0),
                                                      c10::cuda::getStreamFromPool(true, 0)};
  const auto take = [&](int64_t bytes) {
    return at::empty({bytes}, at::dtype(at::kByte).device(device));
  };
  std::vector<at::Tensor> live;
  for (int i = 0; i < 5000; ++i) {
    if (i % 1000 == 500) allocator::emptyCache();
    if (i % 1000 == 700) CHECK_THROWS_AS(take(int64_t{1} << 40), c10::OutOfMemoryError);
    c10::cuda::setCurrentCUDAStream(streams[engine() % streams.size()]);
    if (!live.empty() && (live.size() > 200 || engine() % 100 < 47)) {
      std::swap(live[engine() % live.size()], live.back());
      live.pop_back();
      continue;
    }
    live.push_back(take(random_bytes(engine)));
    if (shares && engine() % 4 == 0) live.back().record_stream(streams[engine() % streams.size()]);
  }
  live.push_back(take(1));  // an allocation completes the frees that wait
  return live;
}

/// Returns LibTorch's, after comparing.
Lines compare_storm(uint64_t seed, bool shares) {
  std::vector<at::Tensor> live;
  const Snapshots snapshots =
      record([&](c10::Device device, Recorder&) { live = storm(seed, shares, device); });
  const Lines ours(snapshots.ours);
  Lines theirs(snapshots.theirs);
  check_equal(without_completions(ours.trace), without_completions(theirs.trace));
  if (!shares) check_equal(ours.trace, theirs.trace);
  check_equal(ours.segments, theirs.segments);
  CHECK(theirs.count("alloc") > 2000);
  CHECK(theirs.count("oom") == 5);
  CHECK(theirs.count("segment_free") + theirs.count("segment_unmap") > 0);
  CHECK(theirs.count("free_completed") == ours.count("free_completed"));
  return theirs;
}

}  // namespace

TEST_CASE("compare snapshots of a storm", "[.process]") {
  const uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  CHECK(late_completions(compare_storm(seed, false).trace) == 0);
  std::cout << "seed " << seed << "\n> equal\n";
}

TEST_CASE("compare snapshots of a storm that shares", "[.process]") {
  const uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  CHECK(late_completions(compare_storm(seed, true).trace) > 100);
  std::cout << "seed " << seed << "\n> equal\n";
}

TEST_CASE("compare snapshots of training", "[.process]") {
  const models::ModelSpec spec = models::find_spec("vit-tutorial");
  const planner::Schedule schedule = build_schedule(
      spec, {.kind = planner::StrategyKind::fsdp, .world_size = 8}, planner::Pass::train);
  std::unique_ptr<runtime::RankState> state;  // outlives the recording, as a rank's outlives a step
  tests::IdleCommunicator idle;
  const Snapshots snapshots = record([&](c10::Device device, Recorder& recorder) {
    runtime::take_workspaces(device);
    const auto streams = runtime::make_streams(device);
    state = std::make_unique<runtime::RankState>(spec, schedule, 0, device);
    runtime::Executor executor(spec, *state, *streams, {&idle, &idle}, {});
    const models::Batch batch{.input = at::zeros({64, 1, 28, 28}, at::TensorOptions(device)),
                              .targets = at::zeros({64}, at::dtype(at::kLong).device(device))};
    for (int step = 0; step < 3; ++step) {
      recorder.step(step);
      executor.run(schedule, step, [&] { return batch; });
    }
  });
  const Lines ours(snapshots.ours);
  const Lines theirs(snapshots.theirs);
  check_equal(ours.trace, theirs.trace);
  check_equal(ours.segments, theirs.segments);
  CHECK(theirs.count("alloc") > 1000);
  CHECK(theirs.segments.size() > 20);
  std::cout << "> equal\n";
}

TEST_CASE("a storm's export is LibTorch's own snapshot") {
  CHECK(tests::output_of_case("compare snapshots of a storm", kWhole) == "equal\n");
  CHECK(tests::output_of_case("compare snapshots of a storm", kExpandable) == "equal\n");
}

TEST_CASE("an export differs from LibTorch's snapshot only in when a free that waits completes") {
  CHECK(tests::output_of_case("compare snapshots of a storm that shares", kWhole) == "equal\n");
  CHECK(tests::output_of_case("compare snapshots of a storm that shares", kExpandable) ==
        "equal\n");
}

TEST_CASE("training's export is LibTorch's own snapshot") {
  CHECK(tests::output_of_case("compare snapshots of training", kWhole) == "equal\n");
  CHECK(tests::output_of_case("compare snapshots of training", kExpandable) == "equal\n");
}
