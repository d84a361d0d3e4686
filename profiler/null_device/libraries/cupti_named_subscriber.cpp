// Defines the call of CUDA 13's CUPTI that takes a subscriber with a name.
#include <string>

#include "profiler/null_device/libraries/cupti_callbacks.h"

namespace {

void copy_text(const std::string& text, char* target, size_t size) {
  if (target == nullptr || size == 0) return;
  target[text.copy(target, size - 1)] = '\0';
}

}  // namespace

extern "C" CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* handle,
                                         CUpti_CallbackFunc callback, void* data,
                                         CUpti_SubscriberParams* params) {
  using shardlens::profiler::subscribe;
  if (params == nullptr) return subscribe(handle, callback, data, "", nullptr);
  if (params->structSize != CUpti_SubscriberParams_STRUCT_SIZE) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  const std::string name = params->subscriberName == nullptr ? "" : params->subscriberName;
  std::string other;
  const CUptiResult result =
      subscribe(handle, callback, data, name.substr(0, CUPTI_SUBSCRIBER_NAME_MAX_LEN), &other);
  if (result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED) {
    copy_text(other, params->oldSubscriberName, params->oldSubscriberSize);
  }
  return result;
}
