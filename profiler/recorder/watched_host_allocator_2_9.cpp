#include "profiler/recorder/watched_host_allocator.h"

namespace shardlens::profiler {

at::HostAllocator& keep_watched(at::HostAllocator& inner, const PinnedRequestListener& listener) {
  static auto& watched = *new WatchedHostAllocator(inner, listener);
  return watched;
}

}  // namespace shardlens::profiler
