#include "profiler/recorder/watched_host_allocator.h"

#include <functional>
#include <utility>
#include <vector>

namespace shardlens::profiler {

namespace {

/// Has the functions that came with LibTorch 2.10 to 2.15.
class LaterHostAllocator final : public WatchedHostAllocator {
 public:
  using WatchedHostAllocator::WatchedHostAllocator;

  void begin_allocate_to_pool(c10::MempoolId_t pool,
                              std::function<bool(c10::Stream)> filter) override {
    inner().begin_allocate_to_pool(pool, std::move(filter));
  }
  void end_allocate_to_pool(c10::MempoolId_t pool) override { inner().end_allocate_to_pool(pool); }
  void release_pool(c10::MempoolId_t pool) override { inner().release_pool(pool); }
  void record_history(bool enabled, c10::CachingDeviceAllocator::CreateContextFn context,
                      size_t entries, c10::CachingDeviceAllocator::RecordContext when,
                      bool clears) override {
    inner().record_history(enabled, context, entries, when, clears);
  }
  bool is_history_enabled() const override { return inner().is_history_enabled(); }
  std::vector<c10::CachingDeviceAllocator::HostSegmentInfo> get_segments() override {
    return inner().get_segments();
  }
  std::vector<c10::CachingDeviceAllocator::TraceEntry> get_traces() override {
    return inner().get_traces();
  }
  void record_external_register(void* address, size_t bytes) override {
    inner().record_external_register(address, bytes);
  }
  void record_external_unregister(void* address) override {
    inner().record_external_unregister(address);
  }
};

}  // namespace

at::HostAllocator& keep_watched(at::HostAllocator& inner, const PinnedRequestListener& listener) {
  static auto& watched = *new LaterHostAllocator(inner, listener);
  return watched;
}

}  // namespace shardlens::profiler
