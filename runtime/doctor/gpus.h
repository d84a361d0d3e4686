// Asks NVIDIA's driver and the libraries beside LibTorch for their versions, in child processes and
// without LibTorch.
#pragma once

#include "runtime/doctor/doctor.h"

namespace shardlens::runtime {

/// Fills in the driver and its GPUs and, if there are GPUs, the libraries loaded for them.
void look_at_gpus(MachineFacts& facts);

}  // namespace shardlens::runtime
