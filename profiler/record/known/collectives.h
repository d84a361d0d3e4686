// Gives what a collective returns where no other rank exists: the absent ranks are taken to have
// what this one has. A sum is W times its value, a gather W copies, a broadcast this rank's own.
#pragma once

#include <ATen/core/ivalue.h>

#include <string_view>
#include <vector>

#include "profiler/null_device/driver/known_memory.h"

namespace shardlens::profiler {

/// Makes known what the call `name` of c10d, such as "c10d::allreduce_", has written, if what it
/// read is known; else makes it unknown.
void apply_collective(KnownMemory& memory, std::string_view name,
                      const std::vector<c10::IValue>& arguments);

}  // namespace shardlens::profiler
