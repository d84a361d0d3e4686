// Hides the differences between the versions of LibTorch that the recorder is built against, 2.9 to
// 2.15.
#pragma once

#include <cstdint>

namespace shardlens::profiler {

/// Calls the function. If it has one parameter more than in older versions, that parameter gets the
/// default value of its type.
template <class... Parameters, class... Arguments>
void call_with_default(void (*function)(Parameters...), Arguments... arguments) {
  if constexpr (sizeof...(Parameters) > sizeof...(Arguments)) {
    function(arguments..., {});
  } else {
    function(arguments...);
  }
}

/// The pinned memory that LibTorch's allocator holds, and the part that is in use, in bytes.
struct PinnedBytes {
  int64_t held = 0;
  int64_t used = 0;
};

/// Reads the counts from a HostStats: until 2.9 "allocated" meant the bytes in use, since 2.10 it
/// means the bytes held.
template <class HostStats>
PinnedBytes pinned_bytes(const HostStats& stats) {
  if constexpr (requires { stats.active_bytes; }) {
    return {.held = stats.allocated_bytes.current, .used = stats.active_bytes.current};
  } else {
    return {.held = stats.reserved_bytes.current, .used = stats.allocated_bytes.current};
  }
}

}  // namespace shardlens::profiler
