// A recording small enough to know by heart: three steps of one unit on a GPU.
#pragma once

#include <cstdint>

#include "profiler/recording/profile.h"

namespace shardlens::tests {

/// `activation_bytes` is what forward keeps.
inline profiler::Profile small_recording(int32_t rank = 0,
                                         int64_t activation_bytes = int64_t{3} << 20) {
  using namespace profiler;
  constexpr int64_t kMiB = int64_t{1} << 20;
  constexpr uint64_t kBase = uint64_t{1} << 40;
  const auto mark = [](EventKind kind, int64_t value) {
    return Event{.value = value, .kind = kind};
  };
  const auto counter = [](Counter counter, int64_t value) {
    return Event{
        .address = static_cast<uint64_t>(counter), .value = value, .kind = EventKind::counter};
  };
  Profile profile;
  profile.header = {.rank = rank,
                    .world_size = 2,
                    .device = "null:h200",
                    .gpu = "NVIDIA H200",
                    .capacity_bytes = 141 * 1024 * kMiB,
                    .notice = "null device: memory is real, values are not",
                    .config = "{}",
                    .train =
                        "schedule 1 strategy=fsdp world=2 shards=2\nunit 0 mlp0\n"
                        "  0 FORWARD        unit=a  group=b0  stream=main\n",
                    .evaluate = "",
                    .libraries = "LibTorch 2.11.0",
                    .start_realtime_ns = 0};
  profile.strings = {"", "mlp0.weight", "libnccl.so.2", "libc10_cuda.so"};
  profile.events = {
      counter(Counter::device_total, 144000 * kMiB),
      {.address = 7, .value = 400 * kMiB, .label = 2, .space = Space::driver},
      {.address = kBase, .value = 20 * kMiB, .label = 3, .space = Space::driver},
      {.address = kBase, .value = 20 * kMiB, .space = Space::segment},
      {.address = kBase,
       .value = 4 * kMiB - 100,
       .label = 1,
       .category = Category::parameter_shard},
      mark(EventKind::phase, static_cast<int64_t>(Phase::training)),
  };
  for (int64_t step = 0; step < 3; ++step) {
    const uint64_t address = kBase + 4 * kMiB;
    profile.events.push_back(mark(EventKind::step, step));
    profile.events.push_back({.address = address,
                              .value = activation_bytes,
                              .action = 0,
                              .category = Category::activation});
    profile.events.push_back({.address = address, .kind = EventKind::free});
    profile.events.push_back(counter(Counter::device_used, 1000 * kMiB));
    profile.events.push_back(counter(Counter::resident_host, 2048 * kMiB + step * kMiB));
  }
  int64_t time_ns = 0;
  for (Event& event : profile.events) event.time_ns = time_ns += 500'000;
  return profile;
}

}  // namespace shardlens::tests
