// Counts what a process asks of the driver, for the phases of run.sh: launches of kernels and
// graphs, and requests for memory. The driver loads it into a process that uses CUDA, by
//
//     CUDA_INJECTION64_PATH=.../libcount_calls.so SHARDLENS_CALLS=FILE program
//
// and FILE.PID then holds four counters of 64 bits each, in the order of `Counters`. They are in
// mapped memory, so they survive when the process is killed. A Python program may load it by ctypes
// and call InitializeInjection() itself. Without SHARDLENS_CALLS it counts nothing, but still takes
// CUPTI's only place for a subscriber, so that the recorder cannot use it.
#include <cupti.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace {

struct Counters {
  std::atomic<uint64_t> kernels;
  std::atomic<uint64_t> graphs;
  std::atomic<uint64_t> memory;
  std::atomic<uint64_t> runtime_kernels;  // as the runtime's callers launched them
};

struct CountedCall {
  CUpti_CallbackDomain domain;
  CUpti_CallbackId id;
  std::atomic<uint64_t> Counters::*counter;
};

constexpr CountedCall driver_entry(CUpti_CallbackId id, std::atomic<uint64_t> Counters::*counter) {
  return {CUPTI_CB_DOMAIN_DRIVER_API, id, counter};
}

constexpr CountedCall runtime_entry(CUpti_CallbackId id) {
  return {CUPTI_CB_DOMAIN_RUNTIME_API, id, &Counters::runtime_kernels};
}

constexpr std::array kCounted = {
    driver_entry(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel, &Counters::kernels),
    driver_entry(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel_ptsz, &Counters::kernels),
    driver_entry(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx, &Counters::kernels),
    driver_entry(CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx_ptsz, &Counters::kernels),
    driver_entry(CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel, &Counters::kernels),
    driver_entry(CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel_ptsz, &Counters::kernels),
    driver_entry(CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch, &Counters::graphs),
    driver_entry(CUPTI_DRIVER_TRACE_CBID_cuGraphLaunch_ptsz, &Counters::graphs),
    driver_entry(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, &Counters::memory),
    driver_entry(CUPTI_DRIVER_TRACE_CBID_cuMemCreate, &Counters::memory),
    runtime_entry(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_v7000),
    runtime_entry(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernel_ptsz_v7000),
    runtime_entry(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_v11060),
    runtime_entry(CUPTI_RUNTIME_TRACE_CBID_cudaLaunchKernelExC_ptsz_v11060),
};

/// Null if the file cannot be made.
Counters* map_counters(const char* path) {
  const std::string own = std::string(path) + "." + std::to_string(::getpid());
  const int file = ::open(own.c_str(), O_RDWR | O_CREAT, 0644);
  if (file < 0 || ::ftruncate(file, sizeof(Counters)) != 0) return nullptr;
  void* const memory =
      ::mmap(nullptr, sizeof(Counters), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  return memory == MAP_FAILED ? nullptr : static_cast<Counters*>(memory);
}

void count(void* counters, CUpti_CallbackDomain domain, CUpti_CallbackId id,
           const void* data) noexcept {
  if (static_cast<const CUpti_CallbackData*>(data)->callbackSite != CUPTI_API_ENTER) return;
  for (const CountedCall& call : kCounted) {
    if (call.domain != domain || call.id != id) continue;
    ++(static_cast<Counters*>(counters)->*call.counter);
  }
}

/// CUPTI is looked up, not linked: the process brings its own, or has none.
template <class Function>
Function find(void* library, const char* name) {
  return reinterpret_cast<Function>(::dlsym(library, name));
}

}  // namespace

/// The driver calls it once, before a process can use CUDA. Returns 1 if it has subscribed and
/// counts what it was asked to; else 0, and the program goes on without it.
extern "C" [[gnu::visibility("default")]] int InitializeInjection() {
  void* const cupti = ::dlopen("libcupti.so.13", RTLD_NOW | RTLD_LOCAL);
  if (cupti == nullptr) return 0;
  const auto subscribe = find<decltype(&cuptiSubscribe)>(cupti, "cuptiSubscribe");
  const auto enable = find<decltype(&cuptiEnableCallback)>(cupti, "cuptiEnableCallback");
  if (subscribe == nullptr || enable == nullptr) return 0;
  const char* const path = std::getenv("SHARDLENS_CALLS");
  Counters* const counters = path == nullptr ? nullptr : map_counters(path);
  CUpti_SubscriberHandle subscriber = nullptr;
  if (subscribe(&subscriber, count, counters) != CUPTI_SUCCESS) return 0;
  if (counters == nullptr) return path == nullptr ? 1 : 0;
  bool enabled = true;
  for (const CountedCall& call : kCounted) {
    const CUptiResult result = enable(1, subscriber, call.domain, call.id);
    enabled = enabled && result == CUPTI_SUCCESS;
  }
  return enabled ? 1 : 0;
}
