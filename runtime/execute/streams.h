// Provides the streams that a schedule names, on a device: where work is enqueued, and how one
// stream waits for another. Stream::host is not among them (host_queue.h). The CPU has one order
// only, so there every wait holds already (streams_inline.cpp); on CUDA a wait is an event
// (streams_cuda.cpp).
//
// Memory is only allocated on the main stream: slots are allocated once, and collectives work in
// place. So no block is used on a stream that the caching allocator does not know of, and no
// `record_stream` is needed. One thread uses it.
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

  /// Begins a pass of `actions` actions. Its work on every stream runs after everything already
  /// queued on main.
  virtual void begin(size_t actions) = 0;

  /// Makes `stream` LibTorch's current stream, until the next call.
  virtual void select(planner::Stream stream) = 0;

  /// Marks the end of an action whose work has all been enqueued on the stream.
  virtual void record(int action, planner::Stream stream) = 0;

  /// Makes work enqueued on `stream` from now on wait for an action recorded in this pass.
  virtual void wait(planner::Stream stream, int action) = 0;

  /// Blocks the calling thread until an action that was recorded in this pass has ended. Any
  /// thread.
  virtual void synchronize(int action) const = 0;

  /// Ends a pass. Work enqueued on main from now on runs after all copies of the pass.
  virtual void end() = 0;

  /// Returns the cudaStream_t behind a stream; null if there is none, or if it is CUDA's default.
  virtual void* handle(planner::Stream stream) const = 0;
};

/// Makes the streams of a device. If `one_for_both`, gather and reduce are one stream, for a
/// communicator that serves both. Throws c10::Error if the device has no streams left.
std::unique_ptr<Streams> make_streams(const c10::Device& device, bool one_for_both = false);

std::unique_ptr<Streams> make_inline_streams();
std::unique_ptr<Streams> make_cuda_streams(const c10::Device& device, bool one_for_both);

}  // namespace shardlens::runtime
