// Computes what a collective returns when no other rank exists: the absent ranks are assumed to
// have the same values as this one. A sum is W times the value, a gather W copies, a broadcast this
// rank's own.
#pragma once

#include <ATen/core/ivalue.h>

#include <string_view>
#include <vector>

#include "profiler/null_device/driver/known_memory.h"

namespace shardlens::profiler {

/// Makes known what a call of c10d named `name`, such as "c10d::allreduce_", has written, if its
/// inputs are known; else makes it unknown.
void apply_collective(KnownMemory& memory, std::string_view name,
                      const std::vector<c10::IValue>& arguments);

/// Adds the call to the trace of work, if one is made. The program's process groups are PyTorch's
/// "fake" ones, which never call NCCL.
void trace_collective(std::string_view name, const std::vector<c10::IValue>& arguments);

}  // namespace shardlens::profiler
