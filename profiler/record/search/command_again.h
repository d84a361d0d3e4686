// Words the command that runs a variant of a program again.
#pragma once

#include <cstdint>
#include <string>

#include "profiler/record/record_options.h"

namespace shardlens::profiler {

/// Returns the command that records a program with these options on a GPU with `fit_bytes`.
std::string command_again(const RecordOptions& options, int64_t fit_bytes);

}  // namespace shardlens::profiler
