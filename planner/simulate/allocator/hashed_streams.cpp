#include "planner/simulate/allocator/hashed_streams.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"

namespace shardlens::planner {

namespace {

constexpr size_t kLeastBuckets = 4;
constexpr int kLeastDistance = 4;
constexpr uint64_t kGoldenRatio = 11400714819323198485U;  // of 2^64: Fibonacci hashing

int log2(size_t buckets) { return std::bit_width(buckets) - 1; }

/// Returns how far from its place an element may be.
int distance_limit(size_t buckets) { return std::max(kLeastDistance, log2(buckets)); }

size_t place_of(uint64_t hash, size_t buckets) {
  return buckets == 0 ? 0 : (kGoldenRatio * hash) >> (64 - log2(buckets));
}

}  // namespace

size_t HashedStreams::occupied_from(size_t place) const {
  while (place < slots_.size() && slots_[place].distance == kVacant) ++place;
  return place;
}

bool HashedStreams::is_full(int distance) const {
  return (count_ + 1) * 2 > buckets_ || distance == distance_limit(buckets_);
}

bool HashedStreams::insert(StreamIndex stream, uint64_t hash) {
  while (true) {
    size_t place = place_of(hash, buckets_);
    int distance = 0;
    for (; place < slots_.size() && slots_[place].distance >= distance; ++place, ++distance) {
      if (slots_[place].stream == stream) return false;
    }
    if (!is_full(distance)) {
      insert_new({.hash = hash, .stream = stream, .distance = distance}, place);
      return true;
    }
    grow();
  }
}

/// Inserts an element by Robin Hood probing: an element nearer to its own place makes way for one
/// that is farther from its own.
void HashedStreams::insert_new(Slot slot, size_t place) {
  const size_t own_place = place;
  for (;; ++place, ++slot.distance) {
    if (place > own_place && slot.distance == distance_limit(buckets_)) {
      std::swap(slot, slots_[own_place]);
      grow();
      insert(slot.stream, slot.hash);
      return;
    }
    if (slots_[place].distance == kVacant) break;
    if (slots_[place].distance < slot.distance) std::swap(slot, slots_[place]);
  }
  slots_[place] = slot;
  ++count_;
}

size_t HashedStreams::erase(size_t place) {
  check(place < slots_.size() && slots_[place].distance != kVacant, "no stream stands here");
  check(count_ > 0, "a set of streams that counts fewer than it holds");
  --count_;
  size_t vacated = place;
  for (; slots_[vacated + 1].distance > 0; ++vacated) {
    slots_[vacated] = slots_[vacated + 1];
    --slots_[vacated].distance;
  }
  slots_[vacated].distance = kVacant;
  return occupied_from(place);
}

void HashedStreams::grow() {
  buckets_ = std::max(kLeastBuckets, 2 * buckets_);
  const auto displaced = static_cast<size_t>(distance_limit(buckets_));
  const std::vector<Slot> old = std::exchange(slots_, std::vector<Slot>(buckets_ + displaced));
  const size_t count = std::exchange(count_, 0);
  for (const Slot& slot : old) {
    if (slot.distance != kVacant) insert(slot.stream, slot.hash);
  }
  check(count_ == count, "a stream is lost where its set grows");
}

}  // namespace shardlens::planner
