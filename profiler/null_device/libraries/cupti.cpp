// Implements CUPTI's versions, clock, identities and texts.
#include <cuda.h>

#include "profiler/null_device/libraries/cupti_activity.h"
#include "profiler/null_device/libraries/cupti_callbacks.h"
#include "profiler/null_device/libraries/cupti_tracer.h"

using namespace shardlens;
using namespace shardlens::profiler;

extern "C" {

CUptiResult cuptiGetVersion(uint32_t* version) {
  if (version == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *version = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiFinalize() {
  drop_subscriber();
  stop_recording();
  set_clock(nullptr);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp(uint64_t* timestamp) {
  if (timestamp == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  *timestamp = timestamp_ns();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock) {
  if (clock == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  set_clock(clock);
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

/// Returns the device of a context. Null means the current context, and there is only one.
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
