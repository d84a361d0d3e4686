// A set of streams that is walked in the order in which LibTorch's allocator walks one: c10's
// flat_hash_set, a hash table with Robin Hood probing whose places are visited upwards. The order
// in which pending frees complete follows from it. Private to the allocator model.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace shardlens::planner {

using StreamIndex = uint32_t;

class HashedStreams {
 public:
  /// Inserts a stream; returns true if it was not in the set yet. `hash` is the hash of
  /// c10::Stream, the same whenever the stream is inserted.
  bool insert(StreamIndex stream, uint64_t hash);

  // A walk is written: for (place = first(); place != end(); place = next(place)).
  size_t first() const { return occupied_from(0); }
  size_t next(size_t place) const { return occupied_from(place + 1); }
  size_t end() const { return slots_.size(); }
  StreamIndex at(size_t place) const {
    check(place < slots_.size() && slots_[place].distance != kVacant, "no stream stands here");
    return slots_[place].stream;
  }
  /// Removes the stream at `place` and returns the place where the walk goes on.
  size_t erase(size_t place);

  bool empty() const { return count_ == 0; }

 private:
  static constexpr int kVacant = -1;

  struct Slot {
    uint64_t hash = 0;
    StreamIndex stream = 0;
    int distance = kVacant;  // from the place that the hash gives
  };

  size_t occupied_from(size_t place) const;
  bool is_full(int distance) const;
  void insert_new(Slot slot, size_t place);
  void grow();

  std::vector<Slot> slots_;  // past the buckets, room for what is displaced; the last stays vacant
  size_t buckets_ = 0;       // 0 or a power of two
  size_t count_ = 0;
};

}  // namespace shardlens::planner
