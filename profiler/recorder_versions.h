// What differs between the versions of LibTorch that the recorder is built against, 2.9 to 2.11.
#pragma once

#include <cstdint>

namespace shardlens::profiler {

/// Where the function has a parameter more than older versions have, that gets its type's default.
template <class... Parameters, class... Arguments>
void call_with_default(void (*function)(Parameters...), Arguments... arguments) {
  if constexpr (sizeof...(Parameters) > sizeof...(Arguments)) {
    function(arguments..., {});
  } else {
    function(arguments...);
  }
}

/// What LibTorch's allocator of pinned memory has, in bytes, and what of it is in use.
struct PinnedBytes {
  int64_t held = 0;
  int64_t used = 0;
};

/// Of a HostStats: until 2.9 "allocated" was what is in use, since 2.10 it is what is held.
template <class HostStats>
PinnedBytes pinned_bytes(const HostStats& stats) {
  if constexpr (requires { stats.active_bytes; }) {
    return {.held = stats.allocated_bytes.current, .used = stats.active_bytes.current};
  } else {
    return {.held = stats.reserved_bytes.current, .used = stats.allocated_bytes.current};
  }
}

}  // namespace shardlens::profiler
