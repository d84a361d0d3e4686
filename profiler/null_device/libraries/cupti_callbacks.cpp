#include "profiler/null_device/libraries/cupti_callbacks.h"

#include <cuda.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <utility>

#include "profiler/null_device/libraries/cupti_tracer.h"

struct CUpti_Subscriber_st {};

namespace shardlens::profiler {

namespace {

/// The text that CUPTI puts before every subscriber's name.
constexpr const char* kNamePrefix = "CUPTI for ";

/// Says which callbacks of a domain are on.
template <size_t kCount>
class Switches {
 public:
  bool is_on(CUpti_CallbackId id) const { return on_[id].load(std::memory_order_relaxed); }
  bool set(CUpti_CallbackId id, bool on) {
    if (id == 0 || id >= kCount) return false;
    on_[id].store(on, std::memory_order_relaxed);
    return true;
  }
  void set_all(bool on) {
    for (std::atomic<bool>& each : on_) each.store(on, std::memory_order_relaxed);
  }
  static bool has(CUpti_CallbackId id) { return id > 0 && id < kCount; }

 private:
  std::array<std::atomic<bool>, kCount> on_{};
};

struct Subscriber : CUpti_Subscriber_st {
  Subscriber(CUpti_CallbackFunc function, void* its_data, std::string its_name)
      : callback(function), data(its_data), name(std::move(its_name)) {}

  const CUpti_CallbackFunc callback;
  void* const data;
  const std::string name;
  Switches<CUPTI_DRIVER_TRACE_CBID_SIZE> driver;
  Switches<CUPTI_RUNTIME_TRACE_CBID_SIZE> runtime;
};

std::atomic<Subscriber*> current{nullptr};
std::mutex subscribe_mutex;

/// Makes a subscriber. All are kept, because a call on another thread may still use one that has
/// just unsubscribed.
Subscriber& keep_new(CUpti_CallbackFunc callback, void* data, const std::string& name) {
  static std::deque<Subscriber>& all = *new std::deque<Subscriber>;
  return all.emplace_back(callback, data, kNamePrefix + name);
}

Subscriber* subscriber_of(CUpti_SubscriberHandle handle) {
  Subscriber* const now = current.load();
  return now != nullptr && handle == now ? now : nullptr;
}

bool is_enabled(const Subscriber& subscriber, const ApiFunction& function) {
  return function.domain == CUPTI_CB_DOMAIN_DRIVER_API ? subscriber.driver.is_on(function.id)
                                                       : subscriber.runtime.is_on(function.id);
}

/// Returns an error for each domain whose callbacks the null device does not have.
CUptiResult fault_of(CUpti_CallbackDomain domain) {
  switch (domain) {
    case CUPTI_CB_DOMAIN_DRIVER_API:
    case CUPTI_CB_DOMAIN_RUNTIME_API:
    case CUPTI_CB_DOMAIN_STATE:  // CUPTI reports its own faults in it; here it has none
      return CUPTI_SUCCESS;
    case CUPTI_CB_DOMAIN_RESOURCE:
    case CUPTI_CB_DOMAIN_SYNCHRONIZE:
    case CUPTI_CB_DOMAIN_NVTX:
      return CUPTI_ERROR_NOT_SUPPORTED;
    default:
      return CUPTI_ERROR_INVALID_PARAMETER;
  }
}

void call_back(ApiCall& call, CUpti_ApiCallbackSite site) {
  const Subscriber* const subscriber = current.load(std::memory_order_acquire);
  if (subscriber == nullptr || !is_enabled(*subscriber, call.function)) return;
  // An exit is only reported to the subscriber that the entry was reported to.
  if (site == CUPTI_API_EXIT && call.told != subscriber) return;
  call.told = subscriber;
  CUpti_CallbackData data{};
  data.callbackSite = site;
  data.functionName = call.function.name;
  data.functionParams = call.parameters;
  data.functionReturnValue = call.result;
  cuCtxGetCurrent(&data.context);
  data.contextUid = kContextId;
  data.correlationData = &call.correlation_data;
  data.correlationId = call.correlation_id;
  subscriber->callback(subscriber->data, call.function.domain, call.function.id, &data);
}

}  // namespace

CUptiResult subscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback, void* data,
                      const std::string& name, std::string* other) {
  if (handle == nullptr || callback == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (!can_trace()) return CUPTI_ERROR_NOT_INITIALIZED;
  const std::scoped_lock lock(subscribe_mutex);
  if (const Subscriber* const subscribed = current.load()) {
    if (other != nullptr) *other = subscribed->name;
    return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  }
  Subscriber& subscriber = keep_new(callback, data, name);
  current = &subscriber;
  *handle = &subscriber;
  listen_to_calls(&call_back);
  return CUPTI_SUCCESS;
}

void drop_subscriber() {
  const std::scoped_lock lock(subscribe_mutex);
  current = nullptr;
  listen_to_calls(nullptr);
}

}  // namespace shardlens::profiler

using namespace shardlens;
using namespace shardlens::profiler;

extern "C" {

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback,
                           void* data) {
  return subscribe(handle, callback, data, "", nullptr);
}

CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle handle) {
  if (subscriber_of(handle) == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  drop_subscriber();
  return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle handle,
                                CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  Subscriber* const subscriber = subscriber_of(handle);
  if (subscriber == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (const CUptiResult fault = fault_of(domain)) return fault;
  const bool on = enable != 0;
  bool is_known = true;
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API) is_known = subscriber->driver.set(id, on);
  if (domain == CUPTI_CB_DOMAIN_RUNTIME_API) is_known = subscriber->runtime.set(id, on);
  return is_known ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_PARAMETER;
}

CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle handle,
                              CUpti_CallbackDomain domain) {
  Subscriber* const subscriber = subscriber_of(handle);
  if (subscriber == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (const CUptiResult fault = fault_of(domain)) return fault;
  if (domain == CUPTI_CB_DOMAIN_DRIVER_API) subscriber->driver.set_all(enable != 0);
  if (domain == CUPTI_CB_DOMAIN_RUNTIME_API) subscriber->runtime.set_all(enable != 0);
  return CUPTI_SUCCESS;
}

/// Enables all domains that the null device has.
CUptiResult cuptiEnableAllDomains(uint32_t enable, CUpti_SubscriberHandle handle) {
  const CUptiResult driver = cuptiEnableDomain(enable, handle, CUPTI_CB_DOMAIN_DRIVER_API);
  return driver != CUPTI_SUCCESS ? driver
                                 : cuptiEnableDomain(enable, handle, CUPTI_CB_DOMAIN_RUNTIME_API);
}

CUptiResult cuptiGetCallbackState(uint32_t* enabled, CUpti_SubscriberHandle handle,
                                  CUpti_CallbackDomain domain, CUpti_CallbackId id) {
  const Subscriber* const subscriber = subscriber_of(handle);
  if (enabled == nullptr || subscriber == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  if (const CUptiResult fault = fault_of(domain)) return fault;
  const bool is_driver = domain == CUPTI_CB_DOMAIN_DRIVER_API;
  const bool is_runtime = domain == CUPTI_CB_DOMAIN_RUNTIME_API;
  if ((is_driver && !subscriber->driver.has(id)) || (is_runtime && !subscriber->runtime.has(id))) {
    return CUPTI_ERROR_INVALID_PARAMETER;
  }
  *enabled =
      (is_driver && subscriber->driver.is_on(id)) || (is_runtime && subscriber->runtime.is_on(id));
  return CUPTI_SUCCESS;
}

/// Returns the name, but only of functions that can call back.
CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain domain, uint32_t id, const char** name) {
  if (name == nullptr) return CUPTI_ERROR_INVALID_PARAMETER;
  const auto* const found = std::ranges::find_if(api::kAll, [&](const ApiFunction& function) {
    return function.domain == domain && function.id == id;
  });
  *name = found == api::kAll.end() ? nullptr : found->callback_name;
  return *name == nullptr ? CUPTI_ERROR_INVALID_PARAMETER : CUPTI_SUCCESS;
}

}  // extern "C"
