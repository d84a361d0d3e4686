// Declares what the files of CUPTI's stub share.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/null_device/api_observer.h"

namespace shardlens::runtime {

/// CUPTI's number of the one context.
inline constexpr uint32_t kContextId = 1;

/// True if there is a device on which CUPTI can start.
bool can_trace();

/// Attaches to the driver while there is a subscriber or a kind of activity is on, else detaches.
void attach_or_detach();

/// Returns nanoseconds since 1970, or what the client's clock says.
uint64_t timestamp_ns();

// These are defined in cupti_callbacks.cpp.
/// Subscribes. If there is a subscriber already, `other` gets its name, unless `other` is null.
CUptiResult subscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback, void* data,
                      const std::string& name, std::string* other);
bool is_subscribed();
void call_back(ApiCall& call, CUpti_ApiCallbackSite site);
void drop_subscriber();

// These are defined in cupti_activity.cpp.
bool is_recording();
void record(const MemoryChange& change, uint32_t correlation_id);
/// Hands back the last buffer and forgets the client.
void stop_recording();

}  // namespace shardlens::runtime
