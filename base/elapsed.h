// Tells how long something has taken.
#pragma once

#include <chrono>

namespace shardlens::runtime {

inline double ms_since(std::chrono::steady_clock::time_point start) {
  const auto elapsed = std::chrono::steady_clock::now() - start;
  return std::chrono::duration<double, std::milli>(elapsed).count();
}

}  // namespace shardlens::runtime
