// Answers, for a stub, a call that asks how much memory another call needs.
#pragma once

#include <cstdio>

namespace shardlens::profiler {

/// Returns the library's error, because a made-up size would be allocated, and recorded.
inline int refuse_size(const char* call, int not_supported) {
  std::fprintf(stderr, "null device: %s: how much memory it needs is not known\n", call);
  return not_supported;
}

}  // namespace shardlens::profiler
