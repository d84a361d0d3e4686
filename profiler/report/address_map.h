// A hash table from addresses to indices, since each event of memory costs two lookups. It uses
// linear probing in one array, at most half full: std::unordered_map allocates a node for each
// address, and is four times slower on ten million events.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/hashed.h"

namespace shardlens::profiler {

class AddressMap {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  /// Returns the index of an address; kNone if the map lacks it.
  uint32_t find(uint64_t address) const { return slots_[place_of(address)].index; }

  /// Inserts an address, or replaces its index. Returns the index that it had, or kNone. `index`
  /// must not be kNone.
  uint32_t insert(uint64_t address, uint32_t index) {
    check(index != kNone, "an address gets the index that means none");
    if (2 * (size_ + 1) > slots_.size()) grow();
    Slot& slot = slots_[place_of(address)];
    const uint32_t before = slot.index;
    if (before == kNone) ++size_;
    slot = {address, index};
    return before;
  }

  /// Erases an address. Returns the index that it had; kNone if the map lacks it.
  uint32_t erase(uint64_t address) {
    size_t hole = place_of(address);
    const uint32_t before = slots_[hole].index;
    if (before == kNone) return kNone;
    check(size_ > 0, "more addresses are erased than were inserted");
    --size_;
    // Slots that follow move up, so that no probe ends before its address.
    for (size_t next = (hole + 1) & mask(); slots_[next].index != kNone;
         next = (next + 1) & mask()) {
      const size_t wanted = home_of(slots_[next].address);
      if (((next - wanted) & mask()) < ((next - hole) & mask())) continue;
      slots_[hole] = slots_[next];
      hole = next;
    }
    slots_[hole].index = kNone;
    return before;
  }

  size_t size() const { return size_; }

 private:
  struct Slot {
    uint64_t address = 0;
    uint32_t index = kNone;
  };

  size_t mask() const { return slots_.size() - 1; }
  size_t home_of(uint64_t address) const { return static_cast<size_t>(hashed(address) >> shift_); }
  size_t place_of(uint64_t address) const {
    size_t place = home_of(address);
    while (slots_[place].index != kNone && slots_[place].address != address) {
      place = (place + 1) & mask();
    }
    return place;
  }
  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    --shift_;
    for (const Slot& slot : old) {
      if (slot.index != kNone) slots_[place_of(slot.address)] = slot;
    }
  }

  static constexpr int kFirstBits = 6;
  std::vector<Slot> slots_ = std::vector<Slot>(size_t{1} << kFirstBits);
  int shift_ = 64 - kFirstBits;
  size_t size_ = 0;
};

}  // namespace shardlens::profiler
