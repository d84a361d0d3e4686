// Asks NVIDIA's driver and the libraries beside LibTorch about themselves, without LibTorch, in
// child processes.
#pragma once

#include "runtime/doctor/doctor.h"

namespace shardlens::runtime {

/// Fills in the driver and its GPUs, and, if it has any, the libraries that are loaded for them.
void look_at_gpus(MachineFacts& facts);

}  // namespace shardlens::runtime
