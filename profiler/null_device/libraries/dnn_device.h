// Describes the null device to cuDNN, which can plan for a GPU from a description.
#pragma once

#include <string>

namespace shardlens::profiler {

/// Returns the JSON of CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION: what the driver's calls say of
/// device 0. Returns "" if there is no device.
std::string device_properties_json();

}  // namespace shardlens::profiler
