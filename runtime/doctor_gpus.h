// What NVIDIA's driver and the libraries beside LibTorch say of themselves, asked without LibTorch,
// in child processes.
#pragma once

#include "runtime/doctor.h"

namespace shardlens::runtime {

/// Fills in the driver, its GPUs and the libraries that are loaded where there is one.
void look_at_gpus(Facts& facts);

}  // namespace shardlens::runtime
