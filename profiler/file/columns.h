// Encodes the events of one block as columns of small numbers, which zstd then compresses well.
// FORMAT.md says how each column predicts its values. A block can be decoded without any other: a
// free refers to the allocation that it ends if that is in the same block, and contains the address
// itself otherwise.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "profiler/file/format.h"
#include "profiler/recording/profile.h"

namespace shardlens::profiler {

/// Encodes at most kMaxBlockEvents events per call, and keeps its memory between calls.
class EventEncoder {
 public:
  EventEncoder();
  ~EventEncoder();
  EventEncoder(const EventEncoder&) = delete;
  EventEncoder& operator=(const EventEncoder&) = delete;

  /// Returns the encoded events, which are valid until the next call.
  const Bytes& encode(std::span<const Event> events);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Decodes blocks of events. It never reads outside `bytes`, whatever they hold.
class EventDecoder {
 public:
  /// Appends the `count` events of a block except those of kinds or spaces that this version does
  /// not know, and returns how many it left out. Unknown categories become `other`. Throws
  /// std::runtime_error with the fault if the block is damaged; then no event is added.
  int64_t decode(ByteSpan bytes, uint32_t count, std::vector<Event>& events);

 private:
  std::vector<uint32_t> allocations_;  // the index in `events` of the block's n-th allocation
};

}  // namespace shardlens::profiler
