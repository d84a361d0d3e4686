// Follows the live allocations of one space from event to event, and keeps those of its peak.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "profiler/recording/profile.h"
#include "profiler/report/address_map.h"

namespace shardlens::profiler {

/// The time of an event and its place in the run.
struct Moment {
  int64_t time_ns = 0;
  int64_t step = -1;  // the last that began; -1: none yet
  int32_t action = -1;
  Phase phase = Phase::starting;
  int32_t running = -1;  // the action that runs, whether or not it is known to have allocated
  uint32_t module = 0;   // the label of the module that allocates then; 0: none, or not known
};

/// A number of bytes with its peak, and the peak of a window of time.
struct Level {
  int64_t bytes = 0;
  int64_t peak = 0;
  int64_t window = 0;
  Moment peak_at;

  /// Sets the present bytes. Returns true if they are a new peak; an equal height is not one, so
  /// the first moment of a height counts.
  bool set(int64_t now, const Moment& moment) {
    bytes = now;
    if (now > window) window = now;
    if (now <= peak) return false;
    peak = now;
    peak_at = moment;
    return true;
  }
  /// Returns the peak since the last call, which includes what was alive then, and begins a new
  /// window.
  int64_t next_window() {
    const int64_t peak_of_window = window;
    window = bytes;
    return peak_of_window;
  }
};

/// One live allocation. `given_bytes` differs from `asked_bytes` on a device only.
struct LiveAllocation {
  uint64_t address = 0;
  int64_t asked_bytes = 0;
  int64_t given_bytes = 0;
  int64_t step = -1;     // in which it was allocated
  uint64_t version = 0;  // the number of its allocation
  uint32_t label = 0;
  uint32_t name = 0;  // see EventKind::recategorise
  int32_t action = -1;
  Category category{};
  Phase phase{};
};

/// [Note: the peak's live set in one pass]
/// A recording reaches thousands of new peaks before its last, so the live set is not copied at
/// each. Every allocation has the number of the event that made it. An allocation that was made
/// before the peak and ends after the peak belongs to the peak, so it is set aside. A new peak
/// discards the allocations set aside, since they are dead by then. Those set aside and those that
/// still live and are older than the peak form the live set of the peak. It is exact, costs one
/// comparison an event, and needs no more memory than the set itself. A mark is another such
/// moment, which a caller sets.
class PeakSet {
 public:
  struct Addition {
    const LiveAllocation& live;  // until the next change of the set
    std::optional<LiveAllocation> replaced;
    bool is_peak = false;  // a new one
  };

  /// Adds an allocation. A live allocation at the same address is replaced, since its free is
  /// missing.
  Addition alloc(const Event& event, int64_t given_bytes, const Moment& moment);
  /// Removes the allocation and returns it; returns nothing for an unknown address.
  std::optional<LiveAllocation> free(uint64_t address);
  /// Changes the category from the allocation on, and so at the peak, too, and the name unless it
  /// is 0. Returns false for an unknown address.
  bool recategorise(uint64_t address, Category category, uint32_t name);
  /// Returns the live allocation at an address; null for an unknown one. The next change of the set
  /// ends it.
  const LiveAllocation* find(uint64_t address) const;

  const Level& level() const { return level_; }
  Level& level() { return level_; }
  int64_t asked_bytes() const { return asked_bytes_; }
  const CategoryBytes& given() const { return given_; }
  const CategoryBytes& asked() const { return asked_; }
  const CategoryBytes& given_at_peak() const { return given_at_peak_; }
  const CategoryBytes& asked_at_peak() const { return asked_at_peak_; }

  /// Remembers what is alive now, in place of what was remembered before.
  void mark();

  /// Return the live allocations, now, at the peak and at the mark, in no particular order.
  std::vector<LiveAllocation> live_allocations() const;
  std::vector<LiveAllocation> live_at_peak() const { return live_at(peak_); }
  std::vector<LiveAllocation> live_at_mark() const { return live_at(mark_); }

 private:
  /// A moment whose live set is kept.
  struct KeptMoment {
    uint64_t version = 0;                   // of the last allocation before it
    std::vector<LiveAllocation> set_aside;  // alive then, but not now
  };

  LiveAllocation end(uint32_t index);
  void check_slots() const;
  void count(const LiveAllocation& live, int64_t sign);
  void keep(KeptMoment& moment) const;
  std::vector<LiveAllocation> live_at(const KeptMoment& moment) const;

  Level level_;
  int64_t asked_bytes_ = 0;
  CategoryBytes given_{};
  CategoryBytes asked_{};
  CategoryBytes given_at_peak_{};
  CategoryBytes asked_at_peak_{};

  uint64_t version_ = 0;
  KeptMoment peak_;
  KeptMoment mark_;
  AddressMap by_address_;              // of slots_
  std::vector<LiveAllocation> slots_;  // version 0: unused
  std::vector<uint32_t> unused_;       // of slots_
};

}  // namespace shardlens::profiler
