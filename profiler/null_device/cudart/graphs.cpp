// Answers the calls on CUDA graphs. Captured work is not kept, because launching it does nothing.
// But the effects of a capture on LibTorch are real: its allocator hands out blocks of the graph's
// own pool.
#include "profiler/null_device/cudart/graphs.h"

#include <cuda_runtime_api.h>

#include <atomic>
#include <map>
#include <mutex>
#include <utility>

#include "profiler/null_device/cudart/errors.h"
#include "profiler/null_device/driver/driver.h"
#include "profiler/null_device/driver/known_memory.h"
#include "profiler/null_device/driver/work_feed.h"
#include "profiler/null_device/handle.h"

namespace shardlens::profiler {

namespace {

class Captures {
 public:
  uint64_t capture_id(cudaStream_t stream) {
    if (underway_ == 0) return 0;
    const std::scoped_lock lock(mutex_);
    return find(streams_, stream);
  }

  bool are_underway() const { return underway_ != 0; }

  bool begin(cudaStream_t stream) {
    const std::scoped_lock lock(mutex_);
    if (!streams_.emplace(stream, last_ + 1).second) return false;
    ++last_;
    ++underway_;
    return true;
  }

  /// Returns the capture that has ended; 0: the stream was part of none.
  uint64_t end(cudaStream_t stream) {
    const std::scoped_lock lock(mutex_);
    const uint64_t capture = find(streams_, stream);
    if (capture == 0) return 0;
    const auto is_part = [&](const auto& part) { return part.second == capture; };
    std::erase_if(streams_, is_part);
    std::erase_if(events_, is_part);
    --underway_;
    return capture;
  }

  void record(cudaEvent_t event, cudaStream_t stream) {
    if (underway_ == 0) return;
    const std::scoped_lock lock(mutex_);
    events_[event] = find(streams_, stream);
  }

  void wait(cudaStream_t stream, cudaEvent_t event) {
    if (underway_ == 0) return;
    const std::scoped_lock lock(mutex_);
    if (const uint64_t capture = find(events_, event)) streams_.emplace(stream, capture);
  }

  /// Notes which capture a graph holds, before or after it was made executable.
  void hold(const void* graph, uint64_t capture) {
    const std::scoped_lock lock(mutex_);
    held_[graph] = capture;
  }
  uint64_t held_by(const void* graph) {
    const std::scoped_lock lock(mutex_);
    return find(held_, graph);
  }
  void forget(const void* graph) {
    const std::scoped_lock lock(mutex_);
    held_.erase(graph);
  }

 private:
  template <class Handle>
  static uint64_t find(const std::map<Handle, uint64_t>& parts, Handle handle) {
    const auto found = parts.find(handle);
    return found == parts.end() ? 0 : found->second;
  }

  std::mutex mutex_;
  std::atomic<int> underway_ = 0;  // while it is 0 no graph is made, and no lock is taken
  uint64_t last_ = 0;
  std::map<cudaStream_t, uint64_t> streams_;
  std::map<cudaEvent_t, uint64_t> events_;
  std::map<const void*, uint64_t> held_;
};

Captures& captures() {
  static auto& instance = *new Captures;  // LibTorch uses streams in static destructors
  return instance;
}

[[gnu::constructor]] void tell_driver() {
  shardlens_null_captures = [](cudaStream_t stream) { return captures().capture_id(stream); };
}

template <class Object>
cudaError_t make(Object* made, uint64_t capture) {
  create(reinterpret_cast<void**>(made));
  captures().hold(*made, capture);
  return cudaSuccess;
}

cudaError_t unmake(void* graph) {
  captures().forget(graph);
  return result(cudaError_t(destroy(graph)));
}

}  // namespace

uint64_t capture_of(cudaStream_t stream) { return captures().capture_id(stream); }
bool is_any_captured() { return captures().are_underway(); }
void capture_event(cudaEvent_t event, cudaStream_t stream) { captures().record(event, stream); }
void capture_wait(cudaStream_t stream, cudaEvent_t event) { captures().wait(stream, event); }

}  // namespace shardlens::profiler

using shardlens::profiler::captures;
using shardlens::profiler::make;
using shardlens::profiler::result;
using shardlens::profiler::tell_work;
using shardlens::profiler::unmake;
using shardlens::profiler::WorkKind;
using shardlens::profiler::WorkRequest;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return result(captures().begin(stream) ? cudaSuccess : cudaErrorIllegalState);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const uint64_t capture = captures().end(stream);
  return capture == 0 ? result(cudaErrorIllegalState) : make(graph, capture);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = captures().capture_id(stream) == 0 ? cudaStreamCaptureStatusNone
                                               : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  thread_local cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
  std::swap(*mode, current);
  return cudaSuccess;
}

/// Returns a count of 1, because LibTorch asks whether a graph is empty, and would warn.
cudaError_t cudaGraphGetNodes(cudaGraph_t, cudaGraphNode_t*, size_t* count) {
  *count = 1;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph,
                                          unsigned long long) {
  return make(executable, captures().held_by(graph));
}

/// Forgets all known values: the graph's kernels are not kept, so they may write anywhere.
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  tell_work([&] {
    return WorkRequest{.work = {.kind = WorkKind::graph_launch},
                       .stream = stream,
                       .about = static_cast<int64_t>(captures().held_by(graph))};
  });
  if (auto* const known = shardlens_null_known_memory()) known->forget_all();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return unmake(graph); }
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) { return unmake(graph); }

}  // extern "C"
