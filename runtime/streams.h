// The streams that a schedule names, on a device: where what is enqueued goes, and how one stream
// waits for another. Stream::host is not among them (host_queue.h). The CPU has one order only, so
// there every wait holds already (streams_inline.cpp); on CUDA a wait is an event
// (streams_cuda.cpp).
//
// No memory is ever allocated on any stream but main: slots are allocated once, and collectives
// work in place. So no block is used on a stream that the caching allocator does not know of, and
// no `record_stream` is needed. One thread.
#pragma once

#include <cstddef>
#include <memory>

#include "planner/schedule.h"

namespace c10 {
struct Device;
}

namespace shardlens::runtime {

class Streams {
 public:
  virtual ~Streams() = default;

  /// Before a pass of so many actions: what it does on any stream comes after all that main holds.
  virtual void begin(size_t actions) = 0;

  /// Makes `stream` LibTorch's current one, until the next call.
  virtual void select(planner::Stream stream) = 0;

  /// Marks the end of an action, which the stream has been given whole.
  virtual void record(int action, planner::Stream stream) = 0;

  /// What `stream` is given from now on comes after an action that was recorded in this pass.
  virtual void wait(planner::Stream stream, int action) = 0;

  /// The calling thread goes on when an action that was recorded in this pass has ended. Any
  /// thread.
  virtual void synchronize(int action) const = 0;

  /// After a pass: what main is given from now on comes after all that was copied.
  virtual void end() = 0;

  /// The cudaStream_t behind a stream; null where there is none, or where it is CUDA's default.
  virtual void* handle(planner::Stream stream) const = 0;
};

/// `one_for_both`: gather and reduce are one stream of the device, for a communicator that serves
/// both. Throws c10::Error where the device has no streams to give.
std::unique_ptr<Streams> make_streams(const c10::Device& device, bool one_for_both = false);

std::unique_ptr<Streams> make_inline_streams();
std::unique_ptr<Streams> make_cuda_streams(const c10::Device& device, bool one_for_both);

}  // namespace shardlens::runtime
