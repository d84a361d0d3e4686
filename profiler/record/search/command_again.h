// Words the command that runs a variant of a program again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/record/record_options.h"

namespace shardlens::profiler {

/// Returns the flags of `shardlens record` that run a program as these options do, on a GPU with
/// `memory_bytes`: each flag with its value. They name neither levers nor a folder.
std::vector<std::string> flags_again(const RecordOptions& options, int64_t memory_bytes);

/// Returns the command that records a program with these options on a GPU with `fit_bytes`.
std::string command_again(const RecordOptions& options, int64_t fit_bytes);

}  // namespace shardlens::profiler
