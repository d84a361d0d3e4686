// Names the levers with which a Python program was recorded (`shardlens record --with`).
#pragma once

#include <string>
#include <vector>

namespace shardlens::profiler {

/// Returns {"optimizer=fused", "recompute=full"} as a header's configuration names them; none if
/// the program was recorded as it is.
std::vector<std::string> pulled_levers(const std::string& config);

/// Returns "optimizer=fused,recompute=full", as --with takes it; "" without levers.
std::string pulled_levers_text(const std::string& config);

}  // namespace shardlens::profiler
