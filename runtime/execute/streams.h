// Provides the streams that a schedule names, on a device: where work is enqueued, and how one
// stream waits for another. Stream::host is not among them (host_queue.h). The CPU has one order
// only, so there every wait holds already (streams_inline.cpp); on CUDA a wait is an event
// (streams_cuda.cpp).
//
// Memory is allocated on the main stream alone: slots are allocated once, and collectives work in
// place. So no block is used on a stream that the caching allocator does not know of, and no
// `record_stream` is needed. One thread.
#pragma once

#include <cstddef>
#include <memory>

#include "planner/schedule/schedule.h"

namespace c10 {
struct Device;
}

namespace shardlens::runtime {

class Streams {
 public:
  virtual ~Streams() = default;

  /// Begins a pass of so many actions. What it does on any stream comes after all work that main
  /// holds.
  virtual void begin(size_t actions) = 0;

  /// Makes `stream` LibTorch's current one, until the next call.
  virtual void select(planner::Stream stream) = 0;

  /// Marks the end of an action, all of whose work has been enqueued on the stream.
  virtual void record(int action, planner::Stream stream) = 0;

  /// Makes what `stream` is given from now on wait for an action that was recorded in this pass.
  virtual void wait(planner::Stream stream, int action) = 0;

  /// Blocks the calling thread until an action that was recorded in this pass has ended. Any
  /// thread.
  virtual void synchronize(int action) const = 0;

  /// Ends a pass. What main is given from now on comes after all that was copied.
  virtual void end() = 0;

  /// Returns the cudaStream_t behind a stream; null if there is none, or if it is CUDA's default.
  virtual void* handle(planner::Stream stream) const = 0;
};

/// Makes the streams of a device. If `one_for_both`, gather and reduce are one stream of the
/// device, for a communicator that serves both. Throws c10::Error if the device has no streams to
/// give.
std::unique_ptr<Streams> make_streams(const c10::Device& device, bool one_for_both = false);

std::unique_ptr<Streams> make_inline_streams();
std::unique_ptr<Streams> make_cuda_streams(const c10::Device& device, bool one_for_both);

}  // namespace shardlens::runtime
