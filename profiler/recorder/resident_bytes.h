// Says how much memory of the host a process holds.
#pragma once

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>

#include "profiler/null_device/driver/pinned.h"

namespace shardlens::profiler {

/// Returns a function of the null device's driver, or null on a real GPU.
template <class Call>
Call* null_device_call(const char* name) {
  return reinterpret_cast<Call*>(::dlsym(RTLD_DEFAULT, name));
}

/// Returns the pinned memory that only a null device does not take of the host.
inline int64_t untouched_pinned_bytes() {
  static const auto untouched = null_device_call<decltype(shardlens_null_untouched_pinned_bytes)>(
      "shardlens_null_untouched_pinned_bytes");
  return untouched == nullptr ? 0 : static_cast<int64_t>(untouched());
}

/// Returns what the program would have touched if its fills were not postponed
/// (profiler/record/known/postponed_fills.h); null if none ever is.
inline int64_t (*untouched_host_bytes)() = nullptr;

/// Returns the bytes of this process in the host's memory; 0 if the host does not say.
inline int64_t resident_bytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr) return 0;
  long long total_pages = 0, resident_pages = 0;
  const int read = std::fscanf(file, "%lld %lld", &total_pages, &resident_pages);
  std::fclose(file);
  if (read != 2) return 0;
  const int64_t untouched = untouched_host_bytes == nullptr ? 0 : untouched_host_bytes();
  return resident_pages * ::sysconf(_SC_PAGESIZE) + untouched_pinned_bytes() + untouched;
}

}  // namespace shardlens::profiler
