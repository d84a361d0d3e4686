// Random requests to an allocator as training makes them, and worse: many small blocks, sizes that
// recur, sizes at the boundaries of the allocator's arithmetic, phases of growth into a full device
// and of release. The same seed gives the same operations if the same requests fail.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace shardlens::tests {

enum class StormKind : uint8_t {
  allocate,
  free,
  record_stream,
  empty_cache,
  set_fraction,
  take_outside,
  give_back_outside,
  reset_peaks,
  reset_accumulated,
};

struct StormOperation {
  StormKind kind = StormKind::allocate;
  uint32_t stream = 0;
  size_t slot = 0;    // names an allocation until it is freed; also memory taken outside
  int64_t bytes = 0;  // to allocate or to take outside
  double fraction = 1;
};

struct StormSettings {
  uint32_t streams = 4;
  int64_t largest_bytes = int64_t{200} << 20;
  size_t most_live = 600;
  bool sets_fraction = false;
};

class AllocatorStorm {
 public:
  AllocatorStorm(uint64_t seed, const StormSettings& settings)
      : engine_(seed), settings_(settings) {
    for (int64_t& bytes : usual_) bytes = magnitude(uint64_t{1} << 25);
  }

  StormOperation next() {
    if (one_in(1500)) growth_percent_ = std::array{35, 50, 55, 60, 75}[random_below(5)];
    if (one_in(500)) return rare();
    if (one_in(12) && !live_.empty()) return use_elsewhere();
    const bool grows = live_.size() < settings_.most_live && random_below(100) < growth_percent_;
    return grows || live_.empty() ? allocate() : free();
  }

  /// If the last allocation, in the allocator or outside, failed, it is not freed; room is made
  /// instead.
  void failed(const StormOperation& operation) {
    if (operation.kind == StormKind::take_outside) outside_.pop_back();
    if (operation.kind != StormKind::allocate) return;
    live_.pop_back();
    vacant_.push_back(operation.slot);
    growth_percent_ = std::array{30, 50, 55, 65}[random_below(4)];
  }

 private:
  uint64_t random_below(uint64_t bound) { return engine_() % bound; }
  bool one_in(uint64_t count) { return random_below(count) == 0; }

  /// All magnitudes are equally likely.
  int64_t magnitude(uint64_t bound) {
    const auto bits = static_cast<uint64_t>(std::bit_width(bound - 1));
    return static_cast<int64_t>(1 + random_below(bound >> random_below(bits)));
  }

  int64_t at_edge() {
    constexpr int64_t kMiB = int64_t{1} << 20;
    constexpr std::array kEdges = {int64_t{512}, kMiB,      2 * kMiB,  10 * kMiB, 12 * kMiB,
                                   19 * kMiB,    20 * kMiB, 40 * kMiB, 60 * kMiB, 64 * kMiB};
    const int64_t edge = kEdges[random_below(kEdges.size())];
    constexpr std::array kBeside = {int64_t{-513}, int64_t{-1}, int64_t{0}, int64_t{1},
                                    int64_t{512},  kMiB,        kMiB + 1};
    return std::max(int64_t{1}, edge + kBeside[random_below(kBeside.size())]);
  }

  int64_t size() {
    constexpr uint64_t kMiB = uint64_t{1} << 20;
    const uint64_t kind = random_below(100);
    if (kind < 20) return static_cast<int64_t>(1 + random_below(4096));
    if (kind < 40) return static_cast<int64_t>(1 + random_below(kMiB));
    if (kind < 58) return static_cast<int64_t>(kMiB + random_below(9 * kMiB));
    if (kind < 66) return static_cast<int64_t>(10 * kMiB + random_below(12 * kMiB));
    if (kind < 72) return magnitude(static_cast<uint64_t>(settings_.largest_bytes));
    if (kind < 80) return at_edge();
    return usual_[random_below(usual_.size())];
  }

  StormOperation allocate() {
    if (vacant_.empty()) vacant_.push_back(slots_++);
    const size_t slot = vacant_.back();
    vacant_.pop_back();
    live_.push_back(slot);
    return {.kind = StormKind::allocate, .stream = stream(), .slot = slot, .bytes = size()};
  }

  StormOperation free() {
    // The most recent allocation is freed first more often, as with activations.
    const size_t reach = one_in(2) ? std::min<size_t>(live_.size(), 8) : live_.size();
    std::swap(live_[live_.size() - 1 - random_below(reach)], live_.back());
    const size_t slot = live_.back();
    live_.pop_back();
    vacant_.push_back(slot);
    return {.kind = StormKind::free, .slot = slot};
  }

  StormOperation use_elsewhere() {
    return {.kind = StormKind::record_stream,
            .stream = stream(),
            .slot = live_[random_below(live_.size())]};
  }

  StormOperation rare() {
    const uint64_t kind = random_below(10);
    if (kind < 2) return {.kind = StormKind::empty_cache};
    if (kind < 4) return {.kind = StormKind::reset_peaks};
    if (kind < 5) return {.kind = StormKind::reset_accumulated};
    if (kind < 7 && settings_.sets_fraction) {
      const double fraction = one_in(3) ? 1 : 0.2 + static_cast<double>(random_below(800)) / 1000;
      return {.kind = StormKind::set_fraction, .fraction = fraction};
    }
    if (outside_.size() > 2 || (!outside_.empty() && one_in(2))) return give_back();
    outside_.push_back(outside_slots_);
    return {.kind = StormKind::take_outside,
            .slot = outside_slots_++,
            .bytes = magnitude(uint64_t{1} << 28)};
  }

  StormOperation give_back() {
    std::swap(outside_[random_below(outside_.size())], outside_.back());
    const size_t slot = outside_.back();
    outside_.pop_back();
    return {.kind = StormKind::give_back_outside, .slot = slot};
  }

  uint32_t stream() {
    // Most work is on the first one.
    return one_in(2) ? 0 : static_cast<uint32_t>(random_below(settings_.streams));
  }

  std::mt19937_64 engine_;
  StormSettings settings_;
  std::array<int64_t, 12> usual_{};
  uint64_t growth_percent_ = 60;
  std::vector<size_t> live_;
  std::vector<size_t> vacant_;
  size_t slots_ = 0;
  std::vector<size_t> outside_;
  size_t outside_slots_ = 0;
};

}  // namespace shardlens::tests
