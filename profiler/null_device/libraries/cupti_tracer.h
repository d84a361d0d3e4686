// Attaches CUPTI's stub to the driver, and passes each observed call to the listeners: callbacks
// (cupti_callbacks.h) and activity records (cupti_activity.h), which depend on this file and not on
// each other.
#pragma once

#include <cstdint>

#include "profiler/null_device/driver/api_observer.h"

namespace shardlens::profiler {

/// CUPTI's number of the one context.
inline constexpr uint32_t kContextId = 1;

/// True if there is a device on which CUPTI can start.
bool can_trace();

/// Returns nanoseconds since 1970, or what the client's clock says.
uint64_t timestamp_ns();
/// Sets the client's clock; null restores the system's.
void set_clock(CUpti_TimestampCallbackFunc clock);

using CallListener = void (*)(ApiCall& call, CUpti_ApiCallbackSite site);
using MemoryListener = void (*)(const MemoryChange& change, uint32_t correlation_id);

/// Sets a listener; null removes it. While both are null the driver has no observer. A call on
/// another thread may still reach a listener that has just been replaced.
void listen_to_calls(CallListener listener);
void listen_to_memory(MemoryListener listener);

}  // namespace shardlens::profiler
