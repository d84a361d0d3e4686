// Whether ranks of this host can meet and sum, and how quickly.
#pragma once

#include "runtime/doctor.h"

namespace shardlens::runtime {

/// Sums over `ranks` processes, for `seconds` at most. No process is left behind.
CollectiveFact try_collective(int ranks, double seconds);

}  // namespace shardlens::runtime
