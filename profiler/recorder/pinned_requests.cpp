#include "profiler/recorder/pinned_requests.h"

#include <ATen/core/CachingHostAllocator.h>
#include <torch/csrc/api/include/torch/version.h>

#include <atomic>
#include <mutex>
#include <unordered_map>

#include "profiler/recorder/versions.h"
#include "profiler/recorder/watched_host_allocator.h"

namespace shardlens::profiler {

namespace {

/// The versions whose allocator has exactly the functions that WatchedHostAllocator passes on.
constexpr bool kIsKnownVersion =
    TORCH_VERSION_MAJOR == 2 && (TORCH_VERSION_MINOR == 9 || TORCH_VERSION_MINOR == 15);

thread_local int requests_of_thread = 0;

/// The requests that are alive.
class Requests {
 public:
  /// Counts what was given before: as it was rounded, since what was asked is unknown.
  void begin_with(int64_t bytes) {
    const std::scoped_lock lock(mutex_);
    sum_ = bytes;
  }
  int64_t add(void* context, size_t bytes) {
    const std::scoped_lock lock(mutex_);
    asked_[context] = bytes;
    sum_ += static_cast<int64_t>(bytes);
    return sum_;
  }
  void remove(void* context) {
    const std::scoped_lock lock(mutex_);
    const auto found = asked_.find(context);
    if (found == asked_.end()) return;
    sum_ -= static_cast<int64_t>(found->second);
    asked_.erase(found);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<void*, size_t> asked_;  // by the allocator's context of the block
  int64_t sum_ = 0;
};

Requests& requests() {
  static Requests& only = *new Requests;  // tensors are freed in static destructors
  return only;
}

/// Marks the thread while it asks.
struct RequestOfThread {
  explicit RequestOfThread(const PinnedRequestListener& listener) {
    ++requests_of_thread;
    listener.begins();
  }
  ~RequestOfThread() { --requests_of_thread; }
  RequestOfThread(const RequestOfThread&) = delete;
  RequestOfThread& operator=(const RequestOfThread&) = delete;
};

std::atomic<c10::DeleterFnPtr> inner_deleter = nullptr;

void give_back(void* context) {
  requests().remove(context);
  inner_deleter.load()(context);
}

}  // namespace

c10::DataPtr WatchedHostAllocator::allocate(size_t bytes) {
  const RequestOfThread request(listener_);
  c10::DataPtr block = inner_.allocate(bytes);
  if (block.get() == nullptr) return block;
  inner_deleter = block.get_deleter();
  if (!block.compare_exchange_deleter(inner_deleter, &give_back)) return block;
  listener_.served(requests().add(block.get_context(), bytes));
  return block;
}

bool watch_pinned_requests(const PinnedRequestListener& listener) {
  if (!kIsKnownVersion) return false;
  at::HostAllocator& inner = *at::getHostAllocator(at::kCUDA);
  requests().begin_with(pinned_bytes(inner.get_stats()).used);
  at::setHostAllocator(at::kCUDA, &keep_watched(inner, listener), /*priority=*/1);
  return true;
}

bool is_in_pinned_request() { return requests_of_thread > 0; }

}  // namespace shardlens::profiler
