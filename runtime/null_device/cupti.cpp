// Implements CUPTI's attaching, clock, identities and texts.
#include "runtime/null_device/cupti.h"

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <mutex>

namespace shardlens::runtime {

namespace {

/// The call that this thread is in, or null.
thread_local const ApiCall* current_call = nullptr;

class Tracer final : public ApiObserver {
 public:
  void enter(ApiCall& call) override {
    call.outer = current_call;
    // A call that the runtime makes to the driver belongs to the runtime's call.
    call.correlation_id = call.outer != nullptr ? call.outer->correlation_id : ++last_id_;
    current_call = &call;
    call_back(call, CUPTI_API_ENTER);
  }
  void exit(ApiCall& call) override {
    call_back(call, CUPTI_API_EXIT);
    current_call = call.outer;
  }
  void memory_changed(const MemoryChange& change) override {
    // The call is null if the tracer was attached in the middle of it.
    record(change, current_call == nullptr ? 0 : current_call->correlation_id);
  }

 private:
  std::atomic<uint32_t> last_id_{0};
};

Tracer& tracer() {
  static Tracer& instance = *new Tracer;  // LibTorch frees memory in static destructors
  return instance;
}

std::mutex attach_mutex;
std::atomic<CUpti_TimestampCallbackFunc> client_clock{nullptr};

}  // namespace

bool can_trace() { return cuInit(0) == CUDA_SUCCESS; }

void attach_or_detach() {
  const std::scoped_lock lock(attach_mutex);
  shardlens_null_api_observer.store(is_subscribed() || is_recording() ? &tracer() : nullptr,
                                    std::memory_order_release);
}

uint64_t timestamp_ns() {
  if (const CUpti_TimestampCallbackFunc clock = client_clock.load()) return clock();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

}  // namespace shardlens::runtime

using namespace shardlens::runtime;

extern "C" {

CUptiResult cuptiGetVersion(uint32_t* version) {
  if (version == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiFinalize() {
  drop_subscriber();
  stop_recording();
  client_clock = nullptr;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp(uint64_t* timestamp) {
  if (timestamp == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *timestamp = timestamp_ns();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock) {
  if (clock == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  client_clock = clock;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetContextId(CUcontext context, uint32_t* id) {
  if (id == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  CUcontext the_context = nullptr;
  cuCtxGetCurrent(&the_context);
  if (context != the_context) return CUPTI_ERROR_INVALID_CONTEXT;
  *id = kContextId;
  return CUPTI_SUCCESS;
}

/// Returns the device of a context. Null means the current context, which is always the one.
CUptiResult cuptiGetDeviceId(CUcontext context, uint32_t* id) {
  if (id == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  uint32_t context_id = 0;
  if (context != nullptr && cuptiGetContextId(context, &context_id) != CUPTI_SUCCESS) {
    return CUPTI_ERROR_INVALID_CONTEXT;
  }
  *id = 0;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char** text) {
  if (text == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  switch (result) {
    case CUPTI_SUCCESS:
      *text = "CUPTI_SUCCESS";
      break;
    case CUPTI_ERROR_INVALID_PARAMETER:
      *text = "CUPTI_ERROR_INVALID_PARAMETER";
      break;
    case CUPTI_ERROR_INVALID_CONTEXT:
      *text = "CUPTI_ERROR_INVALID_CONTEXT";
      break;
    case CUPTI_ERROR_INVALID_OPERATION:
      *text = "CUPTI_ERROR_INVALID_OPERATION";
      break;
    case CUPTI_ERROR_MAX_LIMIT_REACHED:
      *text = "CUPTI_ERROR_MAX_LIMIT_REACHED";
      break;
    case CUPTI_ERROR_NOT_INITIALIZED:
      *text = "CUPTI_ERROR_NOT_INITIALIZED";
      break;
    case CUPTI_ERROR_QUEUE_EMPTY:
      *text = "CUPTI_ERROR_QUEUE_EMPTY";
      break;
    case CUPTI_ERROR_INVALID_KIND:
      *text = "CUPTI_ERROR_INVALID_KIND";
      break;
    case CUPTI_ERROR_NOT_SUPPORTED:
      *text = "CUPTI_ERROR_NOT_SUPPORTED";
      break;
    case CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED:
      *text = "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED";
      break;
    default:
      *text = "an error that the null device does not give";
  }
  return CUPTI_SUCCESS;
}

}  // extern "C"
