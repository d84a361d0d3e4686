// What the files of the driver (libcuda) share.
#pragma once

#include <string>

#include "planner/gpus.h"

namespace shardlens::runtime {

/// The GPU that SHARDLENS_NULL_GPU names. Null where the name is unknown: unknown_null_gpu() is
/// why.
const planner::Gpu* null_gpu();
const std::string& unknown_null_gpu();

}  // namespace shardlens::runtime
