// Defines the runtime's calls on streams and events. All work on the device ends at once, so these
// are handles that exist or do not. Handles only increase, so that a destroyed one is never
// mistaken for a new one.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <mutex>
#include <optional>
#include <set>

#include "profiler/null_device/checks/check_feed.h"
#include "profiler/null_device/cudart/errors.h"
#include "profiler/null_device/cudart/graphs.h"
#include "profiler/null_device/driver/work_feed.h"

using shardlens::profiler::capture_event;
using shardlens::profiler::capture_of;
using shardlens::profiler::capture_wait;
using shardlens::profiler::check_feed;
using shardlens::profiler::is_any_captured;
using shardlens::profiler::result;
using shardlens::profiler::tell_work;
using shardlens::profiler::work_observer;
using shardlens::profiler::WorkKind;
using shardlens::profiler::WorkObserver;
using shardlens::profiler::WorkRequest;

namespace {

/// Handles are multiples of this number. CUDA's are too, since they are addresses, and LibTorch
/// takes an odd one for a stream of its own pools. CUDA has three streams that no call creates,
/// named 0, 1 and 2.
constexpr uint64_t kAligned = 16;

template <class Handle>
class Handles {
 public:
  Handle create() {
    const std::scoped_lock lock(mutex_);
    last_ += kAligned;
    live_.insert(last_);
    return reinterpret_cast<Handle>(last_);
  }
  bool destroy(Handle handle) {
    const std::scoped_lock lock(mutex_);
    return live_.erase(reinterpret_cast<uint64_t>(handle)) == 1;
  }
  bool contain(Handle handle) const {
    const std::scoped_lock lock(mutex_);
    return live_.contains(reinterpret_cast<uint64_t>(handle));
  }

 private:
  mutable std::mutex mutex_;
  uint64_t last_ = 0;
  std::set<uint64_t> live_;
};

template <class Handle>
Handles<Handle>& handles() {
  static auto& instance = *new Handles<Handle>;  // LibTorch destroys events in static destructors
  return instance;
}

cudaError_t handle_result(bool exists) {
  return result(exists ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

bool is_stream(cudaStream_t stream) {
  return reinterpret_cast<uint64_t>(stream) < kAligned || handles<cudaStream_t>().contain(stream);
}

bool is_event(cudaEvent_t event) { return handles<cudaEvent_t>().contain(event); }

void tell(WorkKind kind, const void* stream, const void* event = nullptr) {
  tell_work([&] { return WorkRequest{.work = {.kind = kind}, .stream = stream, .event = event}; });
}

/// Answers a query or a wait. The answer is the same, since all work on the device has ended.
cudaError_t wait_result(cudaStream_t stream) {
  const bool exists = is_stream(stream);
  if (capture_of(stream) != 0) return result(cudaErrorStreamCaptureUnsupported);
  if (check_feed != nullptr && exists) check_feed->stream_synchronized(stream);
  return handle_result(exists);
}

cudaError_t wait_result(cudaEvent_t event) {
  const bool exists = is_event(event);
  if (check_feed != nullptr && exists) check_feed->event_synchronized(event);
  return handle_result(exists);
}

// Programs divide by this time, and measure longer if it is small.
constexpr float kUnknownElapsedMs = 1;

/// Returns nothing where no trace of work is made, or the reader is to get no prediction.
std::optional<double> predicted_seconds(cudaEvent_t start, cudaEvent_t end) {
  const auto predicts = shardlens_null_predicts_elapsed.load();
  if (predicts != nullptr && !predicts()) return std::nullopt;
  WorkObserver* const observer = work_observer();
  return observer == nullptr ? std::nullopt : observer->seconds_between(start, end);
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  *stream = handles<cudaStream_t>().create();
  if (check_feed != nullptr) {
    check_feed->stream_created(*stream, (flags & cudaStreamNonBlocking) == 0);
  }
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return handle_result(handles<cudaStream_t>().destroy(stream));
}

cudaError_t cudaStreamQuery(cudaStream_t stream) { return wait_result(stream); }
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  tell(WorkKind::stream_synchronize, stream);
  return wait_result(stream);
}

cudaError_t cudaDeviceSynchronize() {
  tell(WorkKind::device_synchronize, nullptr);
  if (is_any_captured()) return result(cudaErrorStreamCaptureUnsupported);
  if (check_feed != nullptr) check_feed->device_synchronized();
  return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const bool exist = is_stream(stream) && is_event(event);
  if (check_feed != nullptr && exist) check_feed->stream_waits(stream, event);
  if (exist) tell(WorkKind::event_wait, stream, event);
  capture_wait(stream, event);
  return handle_result(exist);
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t call, void* data,
                                  unsigned) {
  if (!is_stream(stream)) return handle_result(false);
  call(stream, cudaSuccess, data);
  return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = handles<cudaEvent_t>().create();
  return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  if (check_feed != nullptr) check_feed->event_destroyed(event);
  return handle_result(handles<cudaEvent_t>().destroy(event));
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  const bool exist = is_event(event) && is_stream(stream);
  if (check_feed != nullptr && exist) check_feed->event_recorded(event, stream);
  if (exist) tell(WorkKind::event_record, stream, event);
  capture_event(event, stream);
  return handle_result(exist);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return cudaEventRecordWithFlags(event, stream, 0);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  tell(WorkKind::event_query, nullptr, event);
  return wait_result(event);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  tell(WorkKind::event_synchronize, nullptr, event);
  return wait_result(event);
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  const bool exist = is_event(start) && is_event(end);
  const auto seconds = exist ? predicted_seconds(start, end) : std::nullopt;
  *milliseconds = seconds ? static_cast<float>(*seconds * 1e3) : kUnknownElapsedMs;
  return handle_result(exist);
}

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t*, cudaEvent_t) {
  return result(cudaErrorNotSupported);
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t*, cudaIpcEventHandle_t) {
  return result(cudaErrorNotSupported);
}

}  // extern "C"
