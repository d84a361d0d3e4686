// A recording of random allocations in every space, with phases, steps, changes of category and
// counters in between. Everything follows from the seed; the device's blocks are the model
// allocator's.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "profiler/recording/profile.h"
#include "tests/support/model_allocator.h"

namespace shardlens::tests {

struct RandomRecording {
  profiler::Profile profile;
  std::vector<int64_t> given;  // for every event: bytes given if it is an allocation
};

class RandomRecorder {
 public:
  RandomRecorder(uint64_t seed, bool expandable)
      : engine_(seed), model_(expandable, [this](const auto& event) { write(event); }) {}

  RandomRecording record(int steps) {
    auto& header = recording_.profile.header;
    header.device = "null:h200";
    header.train = "schedule 1\n  0 FORWARD unit=a stream=main\n  1 BACKWARD unit=a stream=main\n";
    header.evaluate = "schedule 1\n  0 FORWARD unit=b stream=main\n";
    recording_.profile.strings = {"", "mapped", "a.weight", "b.weight", "libnccl.so.2"};
    for (int i = 0; i < steps; ++i) add_one();
    return std::move(recording_);
  }

 private:
  using Event = profiler::Event;
  using EventKind = profiler::EventKind;
  using Space = profiler::Space;

  uint64_t random_below(uint64_t limit) { return engine_() % limit; }

  void write(Event event) {
    event.time_ns = time_ns_ += 1 + static_cast<int64_t>(random_below(1000));
    recording_.profile.events.push_back(event);
    recording_.given.push_back(event.value);
  }

  void add_one() {
    const uint64_t choice = random_below(100);
    if (choice < 2)
      return write({.value = static_cast<int64_t>(random_below(5)), .kind = EventKind::phase});
    if (choice < 6) return write({.value = step_++, .kind = EventKind::step});
    if (choice < 9) return count();
    if (choice < 15) return recategorise();
    if (choice == 15 && random_below(5) == 0) return model_.empty_cache();
    const auto space = std::array{Space::device, Space::device, Space::device,
                                  Space::host,   Space::pinned, Space::driver}[random_below(6)];
    auto& live = live_[static_cast<size_t>(space)];
    // The probability rises and falls, so that a peak is followed by others.
    const bool falls = recording_.profile.events.size() / 400 % 2 == 1;
    if (live.empty() || random_below(100) < (falls ? 42U : 58U)) return alloc(space);
    std::swap(live[random_below(live.size())], live.back());
    const uint64_t address = live.back();
    live.pop_back();
    if (space == Space::device) return model_.free(address);
    write({.address = address, .kind = EventKind::free, .space = space});
  }

  void alloc(Space space) {
    Event event{.value = static_cast<int64_t>(random_below(uint64_t{1} << (1 + random_below(24)))),
                .action = static_cast<int32_t>(random_below(4)) - 1,
                .label = static_cast<uint32_t>(random_below(5)),
                .stream = static_cast<uint16_t>(random_below(2)),
                .space = space,
                .category = static_cast<profiler::Category>(random_below(profiler::kCategories))};
    auto& live = live_[static_cast<size_t>(space)];
    if (space == Space::device) {
      live.push_back(model_.alloc(event));
      recording_.given.back() = model_.given(live.back());
    } else {
      event.address = next_ += 1 << 25;
      live.push_back(event.address);
      write(event);
    }
  }

  void recategorise() {
    const Space space = random_below(2) == 0 ? Space::device : Space::host;
    const auto& live = live_[static_cast<size_t>(space)];
    if (live.empty()) return;
    write({.address = live[random_below(live.size())],
           .kind = EventKind::recategorise,
           .space = space,
           .category = static_cast<profiler::Category>(random_below(profiler::kCategories))});
  }

  void count() {
    const uint64_t counter = random_below(profiler::kCounters);
    const bool is_loss = counter == static_cast<uint64_t>(profiler::Counter::loss);
    const double loss = 1.0 / (1.0 + step_);
    write({.address = counter,
           .value =
               is_loss ? std::bit_cast<int64_t>(loss) : static_cast<int64_t>(random_below(1 << 30)),
           .kind = EventKind::counter});
  }

  std::mt19937_64 engine_;
  RandomRecording recording_;
  ModelAllocator model_;
  std::array<std::vector<uint64_t>, profiler::kSpaces> live_;
  uint64_t next_ = uint64_t{1} << 46;
  int64_t time_ns_ = 0;
  int64_t step_ = 0;
};

inline RandomRecording random_recording(uint64_t seed, bool expandable = false, int steps = 4000) {
  return RandomRecorder(seed, expandable).record(steps);
}

}  // namespace shardlens::tests
