// Tests whether ranks on this host can meet and all-reduce, and measures how fast.
#pragma once

#include "runtime/doctor/doctor.h"

namespace shardlens::runtime {

/// Runs all-reduces over `ranks` processes, for `seconds` at most. No process is left behind.
CollectiveFact try_collective(int ranks, double seconds);

}  // namespace shardlens::runtime
