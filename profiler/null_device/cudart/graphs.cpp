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

  bool end(cudaStream_t stream) {
    const std::scoped_lock lock(mutex_);
    const uint64_t capture = find(streams_, stream);
    if (capture == 0) return false;
    const auto is_part = [&](const auto& part) { return part.second == capture; };
    std::erase_if(streams_, is_part);
    std::erase_if(events_, is_part);
    --underway_;
    return true;
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
};

Captures& captures() {
  static auto& instance = *new Captures;  // LibTorch uses streams in static destructors
  return instance;
}

[[gnu::constructor]] void tell_driver() {
  shardlens_null_is_captured = [](cudaStream_t stream) {
    return captures().capture_id(stream) != 0;
  };
}

template <class Object>
cudaError_t make(Object* made) {
  create(reinterpret_cast<void**>(made));
  return cudaSuccess;
}

}  // namespace

uint64_t capture_of(cudaStream_t stream) { return captures().capture_id(stream); }
bool is_any_captured() { return captures().are_underway(); }
void capture_event(cudaEvent_t event, cudaStream_t stream) { captures().record(event, stream); }
void capture_wait(cudaStream_t stream, cudaEvent_t event) { captures().wait(stream, event); }

}  // namespace shardlens::profiler

using shardlens::profiler::captures;
using shardlens::profiler::destroy;
using shardlens::profiler::make;
using shardlens::profiler::result;

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  return result(captures().begin(stream) ? cudaSuccess : cudaErrorIllegalState);
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (!captures().end(stream)) return result(cudaErrorIllegalState);
  return make(graph);
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

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* graph, cudaGraph_t, unsigned long long) {
  return make(graph);
}

/// Forgets all known values: the graph's kernels are not kept, so they may write anywhere.
cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) {
  if (auto* const known = shardlens_null_known_memory()) known->forget_all();
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return result(cudaError_t(destroy(graph))); }

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  return result(cudaError_t(destroy(graph)));
}

}  // extern "C"
