// Receives what the stub libraries report to the checker (null_checks.h). It lives in the driver's
// library, which the others depend on. If checking is off the pointer is null, and a call costs a
// branch:
//     if (check_feed != nullptr) check_feed->stream_synchronized(stream);
#pragma once

#include "profiler/null_device/checks/null_checks.h"

namespace shardlens::profiler {

class CheckFeed : public NullChecks {
 public:
  virtual void stream_created(void* stream, bool is_blocking) = 0;
  virtual void event_recorded(void* event, void* stream) = 0;
  virtual void event_destroyed(void* event) = 0;
  virtual void stream_waits(void* stream, void* event) = 0;

  // The host now knows that all work up to there has ended.
  virtual void stream_synchronized(void* stream) = 0;
  virtual void event_synchronized(void* event) = 0;
  virtual void device_synchronized() = 0;

  // These report changes of the driver's memory.
  virtual void memory_given(const void* address, size_t bytes) = 0;
  virtual void memory_taken_back(const void* address, size_t bytes) = 0;

  /// Records the call. Its uses of memory are reported separately.
  virtual void nccl_called(const NcclCall& call) = 0;
  virtual void report(const std::string& finding) = 0;

 protected:
  ~CheckFeed() = default;
};

}  // namespace shardlens::profiler

extern "C" {
/// Returns null if checking is off.
shardlens::profiler::CheckFeed* shardlens_null_check_feed();
}

namespace shardlens::profiler {

/// Each library has its own pointer.
inline CheckFeed* const check_feed = shardlens_null_check_feed();

}  // namespace shardlens::profiler
