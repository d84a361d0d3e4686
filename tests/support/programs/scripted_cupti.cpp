#include "tests/support/programs/scripted_cupti.h"

namespace shardlens::tests {

ScriptedCupti& scripted_cupti() {
  static ScriptedCupti instance;
  return instance;
}

void driver_call(CUpti_CallbackFunc callback, void* data, CUpti_CallbackId id,
                 const void* parameters, int result, const std::function<void()>& during) {
  uint64_t correlation = 0x5eed;  // CUPTI does not say that it is zero
  CUpti_CallbackData site{};
  site.callbackSite = CUPTI_API_ENTER;
  site.functionParams = parameters;
  site.correlationData = &correlation;
  callback(data, CUPTI_CB_DOMAIN_DRIVER_API, id, &site);
  if (during) during();
  site.callbackSite = CUPTI_API_EXIT;
  site.functionReturnValue = &result;
  callback(data, CUPTI_CB_DOMAIN_DRIVER_API, id, &site);
}

}  // namespace shardlens::tests

using shardlens::tests::scripted_cupti;

extern "C" {

CUptiResult cuptiGetVersion(uint32_t* version) {
  *version = scripted_cupti().version;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult, const char** text) {
  *text = "CUPTI_ERROR_SCRIPTED";
  return CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe_v2(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback,
                              void* data, CUpti_SubscriberParams* params) {
  auto& cupti = scripted_cupti();
  if (cupti.subscribing != CUPTI_SUCCESS) {
    params->oldSubscriberName[cupti.other_subscriber.copy(params->oldSubscriberName,
                                                          params->oldSubscriberSize - 1)] = '\0';
    return cupti.subscribing;
  }
  cupti.callback = callback;
  cupti.data = data;
  cupti.subscriber = params->subscriberName;
  *handle = reinterpret_cast<CUpti_SubscriberHandle>(&cupti);
  return CUPTI_SUCCESS;
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  scripted_cupti().callback = nullptr;
  return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle, CUpti_CallbackDomain,
                                CUpti_CallbackId id) {
  auto& cupti = scripted_cupti();
  if (cupti.refuses(id)) return CUPTI_ERROR_INVALID_PARAMETER;
  if (enable != 0) cupti.enabled.insert(id);
  return CUPTI_SUCCESS;
}

}  // extern "C"
