#include "profiler/null_device/libraries/cupti_tracer.h"

#include <cuda.h>

#include <atomic>
#include <chrono>
#include <mutex>

namespace shardlens::profiler {

namespace {

std::mutex attach_mutex;
std::atomic<CallListener> call_listener{nullptr};
std::atomic<MemoryListener> memory_listener{nullptr};
std::atomic<CUpti_TimestampCallbackFunc> client_clock{nullptr};

/// The call that this thread is in, or null.
thread_local const ApiCall* current_call = nullptr;

class Tracer final : public ApiObserver {
 public:
  void enter(ApiCall& call) override {
    call.outer = current_call;
    // A call that the runtime makes to the driver belongs to the runtime's call.
    call.correlation_id = call.outer != nullptr ? call.outer->correlation_id : ++last_id_;
    current_call = &call;
    tell(call, CUPTI_API_ENTER);
  }
  void exit(ApiCall& call) override {
    tell(call, CUPTI_API_EXIT);
    current_call = call.outer;
  }
  void memory_changed(const MemoryChange& change) override {
    const MemoryListener listener = memory_listener.load(std::memory_order_acquire);
    if (listener == nullptr) return;
    // The call is null if the tracer was attached while the call was running.
    listener(change, current_call == nullptr ? 0 : current_call->correlation_id);
  }

 private:
  static void tell(ApiCall& call, CUpti_ApiCallbackSite site) {
    const CallListener listener = call_listener.load(std::memory_order_acquire);
    if (listener != nullptr) listener(call, site);
  }

  std::atomic<uint32_t> last_id_{0};
};

Tracer& tracer() {
  static Tracer& instance = *new Tracer;  // LibTorch frees memory in static destructors
  return instance;
}

/// Attaches to the driver while there is a listener, else detaches.
template <class Listener>
void replace(std::atomic<Listener>& place, Listener listener) {
  const std::scoped_lock lock(attach_mutex);
  place = listener;
  const bool is_heard = call_listener.load() != nullptr || memory_listener.load() != nullptr;
  shardlens_null_api_observer.store(is_heard ? &tracer() : nullptr, std::memory_order_release);
}

}  // namespace

bool can_trace() { return cuInit(0) == CUDA_SUCCESS; }

uint64_t timestamp_ns() {
  if (const CUpti_TimestampCallbackFunc clock = client_clock.load()) return clock();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<uint64_t>(std::chrono::nanoseconds(now).count());
}

void set_clock(CUpti_TimestampCallbackFunc clock) { client_clock = clock; }

void listen_to_calls(CallListener listener) { replace(call_listener, listener); }

void listen_to_memory(MemoryListener listener) { replace(memory_listener, listener); }

}  // namespace shardlens::profiler
