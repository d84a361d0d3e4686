// What is alive in one space while events pass by, and what was alive at its peak.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "profiler/profile.h"
#include "profiler/report/address_map.h"

namespace shardlens::profiler {

/// Where in the run something happened.
struct Moment {
  int64_t time_ns = 0;
  int64_t step = -1;  // the last that began; -1: none yet
  int32_t action = -1;
  Phase phase = Phase::starting;
};

using CategoryBytes = std::array<int64_t, kCategories>;

/// A number of bytes with its peak, and the peak of a window of time.
struct Level {
  int64_t bytes = 0;
  int64_t peak = 0;
  int64_t window = 0;
  Moment peak_at;

  /// Whether it is a new peak. The first moment of a height counts.
  bool set(int64_t now, const Moment& moment) {
    bytes = now;
    if (now > window) window = now;
    if (now <= peak) return false;
    peak = now;
    peak_at = moment;
    return true;
  }
  /// The peak since the last call, what was alive then included.
  int64_t next_window() {
    const int64_t peak_of_window = window;
    window = bytes;
    return peak_of_window;
  }
};

/// One allocation. `given_bytes` differs from what was asked for on a device only.
struct Live {
  uint64_t address = 0;
  int64_t asked_bytes = 0;
  int64_t given_bytes = 0;
  int64_t step = -1;     // it was allocated in
  uint64_t version = 0;  // counts allocations
  uint32_t label = 0;
  int32_t action = -1;
  Category category{};
  Phase phase{};
};

/// [Note: the peak's live set in one pass]
/// A recording reaches thousands of new peaks before its last, so the live set is not copied at
/// each. Every allocation has the number of the event that made it. One that ends after the peak
/// and is older than it was alive at the peak and is set aside; a new peak empties what was set
/// aside, since those are dead now. What is set aside, and what still lives and is older than the
/// peak, are the live set of the peak: exact, at a comparison an event, and in no more memory than
/// that set.
class PeakSet {
 public:
  /// Whether it is a new peak. One that has the address already ends: its free is missing.
  bool alloc(const Event& event, int64_t given_bytes, const Moment& moment);
  /// What ended; nothing for an unknown address.
  std::optional<Live> free(uint64_t address);
  /// From its allocation on, so also at the peak. False for an unknown address.
  bool recategorise(uint64_t address, Category category);

  const Level& level() const { return level_; }
  Level& level() { return level_; }
  int64_t asked_bytes() const { return asked_bytes_; }
  const CategoryBytes& given() const { return given_; }
  const CategoryBytes& asked() const { return asked_; }
  const CategoryBytes& given_at_peak() const { return given_at_peak_; }
  const CategoryBytes& asked_at_peak() const { return asked_at_peak_; }

  /// In no order.
  std::vector<Live> live() const;
  std::vector<Live> live_at_peak() const;

 private:
  void count(const Live& live, int64_t sign);
  void keep_if_at_peak(const Live& live);

  Level level_;
  int64_t asked_bytes_ = 0;
  CategoryBytes given_{};
  CategoryBytes asked_{};
  CategoryBytes given_at_peak_{};
  CategoryBytes asked_at_peak_{};

  uint64_t version_ = 0;
  uint64_t peak_version_ = 0;
  AddressMap by_address_;         // of slots_
  std::vector<Live> slots_;       // version 0: unused
  std::vector<uint32_t> unused_;  // of slots_
  std::vector<Live> set_aside_;   // alive at the peak, no longer so
};

}  // namespace shardlens::profiler
