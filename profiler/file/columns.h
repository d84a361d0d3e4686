// Events of one block as columns of small numbers, which zstd then compresses well. FORMAT.md says
// how each column predicts its values. A block needs no other: a free names the allocation that it
// ends where that is in the same block, and the address itself where it is not.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "profiler/file/format.h"
#include "profiler/profile.h"

namespace shardlens::profiler {

/// At most kMaxBlockEvents; keeps its memory from call to call.
class EventEncoder {
 public:
  EventEncoder();
  ~EventEncoder();
  EventEncoder(const EventEncoder&) = delete;
  EventEncoder& operator=(const EventEncoder&) = delete;

  /// Valid until the next call.
  const Bytes& encode(std::span<const Event> events);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Never reads outside `bytes`, whatever they hold.
class EventDecoder {
 public:
  /// Appends `count` events, less those of kinds or spaces that this version does not know: their
  /// number is returned. Categories that it does not know become `other`. Throws
  /// std::runtime_error with what is wrong.
  int64_t decode(ByteSpan bytes, uint32_t count, std::vector<Event>& events);

 private:
  std::vector<uint32_t> allocations_;  // where in `events` the n-th of the block lies
};

}  // namespace shardlens::profiler
