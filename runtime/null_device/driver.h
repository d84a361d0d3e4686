// What the files of the driver (libcuda) share.
#pragma once

#include <cstdint>
#include <string>

#include "planner/gpus.h"

namespace shardlens::runtime {

/// What the environment names. `gpu` is null where it names what cannot be; `error` is then why.
struct NullDevice {
  const planner::Gpu* gpu = nullptr;
  int64_t capacity_bytes = 0;
  int count = 0;
  std::string error;
};

/// Read once.
const NullDevice& null_device();

}  // namespace shardlens::runtime
