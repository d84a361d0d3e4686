// CUPTI's one subscriber, who is called back at the calls in api_observer.h.
#pragma once

#include <string>

#include "profiler/null_device/driver/api_observer.h"

namespace shardlens::profiler {

/// Subscribes. If there is a subscriber already, `other` gets its name, unless `other` is null.
CUptiResult subscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback, void* data,
                      const std::string& name, std::string* other);
void drop_subscriber();

}  // namespace shardlens::profiler
