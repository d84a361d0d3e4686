// Says where the driver's addresses could answer a comparison of two recordings otherwise.
#pragma once

#include <string>
#include <vector>

#include "profiler/compare/diff.h"

namespace shardlens::profiler {

/// Returns a line for each peak of a rank that grows by more than the limit in some orders of
/// addresses, and by less in others.
std::vector<std::string> address_doubts(const RankDiff& rank, double limit_percent);

}  // namespace shardlens::profiler
