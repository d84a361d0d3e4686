// CUPTI's only subscriber, which the calls in api_observer.h call back.
#pragma once

#include <string>

#include "profiler/null_device/driver/api_observer.h"

namespace shardlens::profiler {

/// Subscribes. If there already is a subscriber, `other` gets its name, unless `other` is null.
CUptiResult subscribe(CUpti_SubscriberHandle* handle, CUpti_CallbackFunc callback, void* data,
                      const std::string& name, std::string* other);
void drop_subscriber();

}  // namespace shardlens::profiler
