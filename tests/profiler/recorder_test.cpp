// Compares the recorder on the CPU with LibTorch's own report of its allocations.
#include "profiler/recorder/recorder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <map>

#include "profiler/file/reader.h"
#include "runtime/comm/none.h"
#include "tests/support/counted_memory.h"
#include "tests/support/sample.h"
#include "tests/support/strategies.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/thread_ranks.h"

using namespace shardlens;
using namespace shardlens::profiler;

namespace {

int64_t peak_of_host(const Profile& profile) {
  std::map<uint64_t, int64_t> live;
  int64_t bytes = 0, peak_bytes = 0;
  for (const Event& event : profile.events) {
    if (event.space != Space::host) continue;
    if (event.kind == EventKind::alloc) bytes += live[event.address] = event.value;
    if (event.kind == EventKind::free) bytes -= std::exchange(live[event.address], 0);
    peak_bytes = std::max(peak_bytes, bytes);
  }
  return peak_bytes;
}

}  // namespace

TEST_CASE("a recording knows when it began", "[recorder]") {
  const auto now_ns = [] {
    return std::chrono::nanoseconds(std::chrono::system_clock::now().time_since_epoch()).count();
  };
  const tests::TemporaryFolder folder;
  const int64_t before_ns = now_ns();
  Recorder({.path = folder.file("rank0.slp"), .header = {}}).close();
  const int64_t start_ns = read_profile(folder.file("rank0.slp")).header.start_realtime_ns;
  CHECK(start_ns >= before_ns);
  CHECK(start_ns <= now_ns());
}

TEST_CASE("the peak of a CPU rank is LibTorch's own count", "[recorder]") {
  at::set_num_threads(1);
  const models::ModelSpec spec = models::find_spec("vit-tutorial");
  tests::Sample sample;
  for (const auto& [name, config, strategy] : tests::all_strategies(1)) {
    if (!sample.has_next()) continue;
    INFO(name);
    const planner::Schedule schedule = build_schedule(spec, strategy, planner::Pass::train);
    const tests::TemporaryFolder folder;
    const auto counted = std::make_shared<tests::CountedMemory>();
    Recorder recorder({.path = folder.file("rank0.slp"), .header = {}});
    {
      const c10::DebugInfoGuard listening(c10::DebugInfoKind::PROFILER_STATE, counted);
      const auto streams = runtime::make_inline_streams();
      const runtime::ExecutorOptions options = runtime::executor_options(config);
      runtime::RankState state(spec, schedule, 0, at::kCPU, options.optimizer);
      runtime::NoneCommunicator none;
      runtime::Executor executor(spec, state, *streams, {&none, &none}, options);
      const models::Batch batch = runtime::synthetic_batch(spec, 16, 0, at::kCPU);
      for (int step = 0; step < 3; ++step) executor.run(schedule, step, [&] { return batch; });
    }
    CHECK(recorder.close().lost_events == 0);
    CHECK(counted->peak_bytes > 0);
    CHECK(peak_of_host(read_profile(folder.file("rank0.slp"))) == counted->peak_bytes);
  }
}
