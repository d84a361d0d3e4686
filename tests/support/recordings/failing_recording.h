// A PyTorch program as `record` records it: its allocator takes segments, a line keeps a block of
// every step, and at last a request fails, after cached memory was given back.
#pragma once

#include <cstdint>
#include <string>

#include "profiler/recording/profile.h"

namespace shardlens::tests {

constexpr int64_t kFailingMiB = int64_t{1} << 20;
constexpr int64_t kFailingCapacity = 256 * kFailingMiB;
constexpr int64_t kFailingAsked = 192 * kFailingMiB;
constexpr int64_t kFailingReserved = 96 * kFailingMiB;       // when the request failed,
constexpr int64_t kFailingReservedPeak = 128 * kFailingMiB;  // and at most
inline const std::string kFailingLine = "loss_utils.py:42 ForCausalLMLoss";
inline const std::string kKeptLine = "train.py:9 forward";

/// Writes the events of such a program. Without `fails` its last request is not made.
inline profiler::Profile failing_recording(bool fails = true, int steps = 8) {
  using profiler::Category;
  using profiler::EventKind;
  using profiler::Space;
  profiler::Profile profile;
  profile.header.device = "null:h100";
  profile.header.capacity_bytes = kFailingCapacity;
  profile.strings = {"", "model.py:10 build", kKeptLine, kFailingLine, "train.py:5 step"};
  int64_t time_ns = 0;
  const auto write = [&](profiler::Event event) {
    event.time_ns = time_ns += 1'000'000;
    profile.events.push_back(event);
  };
  const auto segment = [&](EventKind kind, uint64_t address, int64_t bytes) {
    write({.address = address, .value = bytes, .kind = kind, .space = Space::segment});
  };
  const auto tensor = [&](EventKind kind, uint64_t address, int64_t bytes, uint32_t label = 0,
                          Category category = Category::other) {
    write({.address = address,
           .value = bytes,
           .label = label,
           .kind = kind,
           .space = Space::device,
           .category = category});
  };
  constexpr uint64_t kFirst = 0x7f0000000000;
  constexpr uint64_t kSecond = 0x7f1000000000;
  constexpr uint64_t kThird = 0x7f2000000000;
  segment(EventKind::alloc, kFirst, 64 * kFailingMiB);
  tensor(EventKind::alloc, kFirst, 20 * kFailingMiB, 1, Category::parameter_shard);
  tensor(EventKind::alloc, kFirst + 20 * kFailingMiB, 20 * kFailingMiB, 1,
         Category::optimizer_state);
  segment(EventKind::alloc, kSecond, 32 * kFailingMiB);
  write({.value = static_cast<int64_t>(profiler::Phase::training), .kind = EventKind::phase});
  for (int step = 0; step < steps; ++step) {
    write({.value = step, .kind = EventKind::step});
    const auto offset = static_cast<uint64_t>(step) * 2 * kFailingMiB;
    tensor(EventKind::alloc, kSecond + 20 * kFailingMiB, 12 * kFailingMiB, 4, Category::activation);
    tensor(EventKind::alloc, kFirst + 40 * kFailingMiB + offset, 2 * kFailingMiB, 2,
           Category::activation);
    tensor(EventKind::free, kSecond + 20 * kFailingMiB, 12 * kFailingMiB);
  }
  segment(EventKind::alloc, kThird, 32 * kFailingMiB);
  tensor(EventKind::alloc, kThird, 32 * kFailingMiB, 4, Category::activation);
  tensor(EventKind::free, kThird, 32 * kFailingMiB);
  if (!fails) return profile;
  segment(EventKind::free, kThird, 32 * kFailingMiB);
  write({.address = static_cast<uint64_t>(kFailingCapacity - kFailingReserved),
         .value = kFailingAsked,
         .label = 3,
         .kind = EventKind::out_of_memory,
         .space = Space::device,
         .category = Category::activation});
  return profile;
}

}  // namespace shardlens::tests
