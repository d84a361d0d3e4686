// A checkpoint's copy in pinned memory, as a rank with a device takes it and as the planner counts
// it: a null device keeps no values, so no run on one writes a checkpoint.
#include <ATen/ATen.h>
#include <ATen/core/CachingHostAllocator.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdint>
#include <vector>

#include "planner/config/optimizer_options.h"
#include "planner/simulate/simulated_state.h"
#include "profiler/file/reader.h"
#include "profiler/recorder/recorder.h"
#include "runtime/execute/device.h"
#include "runtime/train/checkpointer.h"
#include "tests/support/strategies.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;

namespace {

constexpr int kWorldSize = 8;

std::vector<int64_t> pinned_bytes(const std::vector<profiler::Event>& events, size_t first) {
  std::vector<int64_t> bytes;
  for (size_t i = first; i < events.size(); ++i) {
    const bool is_taken = events[i].kind == profiler::EventKind::alloc;
    if (is_taken && events[i].space == profiler::Space::pinned) bytes.push_back(events[i].value);
  }
  return bytes;
}

std::vector<int64_t> recorded(const models::ModelSpec& spec, const planner::Schedule& schedule,
                              const planner::Config& config, int rank) {
  const tests::TemporaryFolder folder;
  runtime::keep_backward_on_this_thread();
  const c10::Device device = runtime::open_device({.kind = DeviceKind::null, .gpu = "h200"}, 0);
  runtime::RankState state(spec, schedule, rank, device, optimizer_options(config));
  at::getHostAllocator(at::kCUDA)->empty_cache();
  const std::string file = folder.file("rank0.slp");
  profiler::Recorder recorder({.path = file, .header = {}, .on_cuda = true});
  runtime::Staging staging(schedule, state, rank);
  staging.take();
  recorder.close();
  return pinned_bytes(profiler::read_profile(file).events, 0);
}

std::vector<int64_t> predicted(const models::ModelSpec& spec, const planner::Schedule& schedule,
                               const planner::Config& config, int rank) {
  planner::Timeline timeline;
  planner::CachingGpuMemory device(timeline, {});
  planner::HostMemory host(timeline, profiler::Space::host);
  planner::HostMemory pinned(timeline, profiler::Space::pinned);
  planner::meta::Context context{.memory = &device, .gpu = &find_gpu("h200")};
  planner::SimulatedState state(spec, schedule, moments_of(optimizer_options(config)),
                                {timeline, context, host, pinned});
  const size_t first = timeline.events().size();
  state.take_staging(rank);
  return pinned_bytes(timeline.events(), first);
}

}  // namespace

TEST_CASE("the copy for a checkpoint is predicted for every strategy and rank") {
  const models::ModelSpec spec = models::find_spec("vit-tutorial");
  for (const auto& [name, config, strategy] : tests::all_strategies(kWorldSize)) {
    const planner::Schedule schedule = build_schedule(spec, strategy, planner::Pass::train);
    for (const int rank : {0, 3, kWorldSize - 1}) {
      if (rank >= schedule.world_size) continue;
      INFO(name << ", rank " << rank);
      const std::vector<int64_t> bytes = predicted(spec, schedule, config, rank);
      CHECK_FALSE(bytes.empty());
      CHECK(bytes == recorded(spec, schedule, config, rank));
    }
  }
}
