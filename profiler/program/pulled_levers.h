// Names the levers with which a Python program was recorded (`shardlens record --with`).
#pragma once

#include <string>
#include <vector>

#include "profiler/recording/profile.h"

namespace shardlens::profiler {

/// Returns {"optimizer=fused", "recompute=full"} as the header's configuration names them; none if
/// the program was recorded as it is.
std::vector<std::string> pulled_levers(const Header& header);

/// Returns "optimizer=fused,recompute=full", as --with takes it; "" without levers.
std::string pulled_levers_text(const Header& header);

}  // namespace shardlens::profiler
