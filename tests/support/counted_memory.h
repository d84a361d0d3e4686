// LibTorch's own count of CPU memory, as it reports it to the profiler that a thread has set.
#pragma once

#include <c10/core/Allocator.h>

#include <algorithm>
#include <cstdint>

namespace shardlens::tests {

/// Set by a DebugInfoGuard for DebugInfoKind::PROFILER_STATE.
struct CountedMemory final : c10::MemoryReportingInfoBase {
  int64_t bytes = 0;
  int64_t peak_bytes = 0;

  void reportMemoryUsage(void*, int64_t changed_bytes, size_t, size_t, c10::Device) override {
    bytes += changed_bytes;
    peak_bytes = std::max(peak_bytes, bytes);
  }
  bool memoryProfilingEnabled() const override { return true; }
};

}  // namespace shardlens::tests
