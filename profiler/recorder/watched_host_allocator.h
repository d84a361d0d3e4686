// Passes every call on to LibTorch's pinned host allocator, and notes what tensors ask for. Later
// versions of LibTorch have more functions (keep_watched() in its own file for these versions).
#pragma once

#include <ATen/core/CachingHostAllocator.h>

#include "profiler/recorder/pinned_requests.h"

namespace shardlens::profiler {

class WatchedHostAllocator : public at::HostAllocator {
 public:
  WatchedHostAllocator(at::HostAllocator& inner, const PinnedRequestListener& listener)
      : inner_(inner), listener_(listener) {}

  c10::DataPtr allocate(size_t bytes) override;

  void copy_data(void* target, const void* source, size_t bytes) const override {
    inner_.copy_data(target, source, bytes);
  }
  bool record_event(void* block, void* context, c10::Stream stream) override {
    return inner_.record_event(block, context, stream);
  }
  void empty_cache() override { inner_.empty_cache(); }
  at::HostStats get_stats() override { return inner_.get_stats(); }
  void reset_accumulated_stats() override { inner_.reset_accumulated_stats(); }
  void reset_peak_stats() override { inner_.reset_peak_stats(); }

 protected:
  at::HostAllocator& inner() { return inner_; }
  const at::HostAllocator& inner() const { return inner_; }

 private:
  at::HostAllocator& inner_;
  const PinnedRequestListener listener_;
};

/// Returns a watched allocator with all functions of this version's, which is never destroyed.
at::HostAllocator& keep_watched(at::HostAllocator& inner, const PinnedRequestListener& listener);

}  // namespace shardlens::profiler
