// Tells which operations have surely ended when an operation starts: happens-before over CUDA's
// streams, events and the host, by vector clocks. Standard library only; not thread-safe.
//
// A clock says for every stream how many of its operations are known to have ended. Each stream has
// a clock, which holds for the operation that it starts next. An event keeps the clock of its
// stream as it was when the event was recorded, and a stream that waits for the event joins that
// clock to its own. The host has one clock for all threads: it joins what a synchronisation or a
// successful query tells, and everything that the host enqueues later starts after that.
//
// The legacy default stream, as CUDA documents it: an action in it first waits for all blocking
// streams, and all blocking streams then wait for it. Non-blocking streams take no part.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace shardlens::profiler {

class StreamOrder {
 public:
  using Handle = uint64_t;  // a stream or an event

  /// Names an operation by its stream and its place there.
  struct Operation {
    size_t stream = 0;    // by order of appearance
    uint64_t number = 0;  // from 1
  };

  StreamOrder();

  /// Creates a stream. A stream that was not created counts as non-blocking; 0 and 1 are the legacy
  /// default stream, 2 the per-thread one, which is treated as one stream.
  void create(Handle stream, bool is_blocking);

  Operation enqueue(Handle stream);
  /// True if `earlier` has surely ended when `later`, the last operation of its stream, starts.
  bool precedes(const Operation& earlier, const Operation& later) const;
  Handle stream_of(const Operation& operation) const { return streams_[operation.stream].handle; }

  void record(Handle event, Handle stream);
  /// Makes the stream wait for the event. Adds no order if the event was never recorded.
  void wait(Handle stream, Handle event);
  void forget(Handle event) { events_.erase(event); }

  // The host learns that everything up to here has ended.
  void synchronize_stream(Handle stream);
  void synchronize_event(Handle event);
  void synchronize_device();

 private:
  using Clock = std::vector<uint64_t>;  // by stream; those past the end are 0
  struct Stream {
    Handle handle = 0;
    bool is_blocking = false;
    Clock clock;
  };
  static constexpr size_t kLegacy = 0;

  static void join(Clock& into, const Clock& from);
  size_t index_of(Handle stream);
  /// Returns the stream's clock after it has joined what every action in it waits for.
  Clock& act(size_t stream);

  std::vector<Stream> streams_;
  std::unordered_map<Handle, size_t> indices_;
  std::unordered_map<Handle, Clock> events_;
  Clock host_;
};

}  // namespace shardlens::profiler
