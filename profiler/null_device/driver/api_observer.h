// Reports the driver's and the runtime's calls on memory to CUPTI's stub (cupti*.cpp). The pointer
// to the observer lives in the driver's library, which the others depend on; while it is null a
// call costs one branch.
#pragma once

#include <cupti.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace shardlens::profiler {

/// Names a function in CUPTI's terms.
struct ApiFunction {
  CUpti_CallbackDomain domain;
  CUpti_CallbackId id;
  const char* name;           // in a callback's data
  const char* callback_name;  // of its id
};

namespace api {

constexpr ApiFunction driver_function(CUpti_CallbackId id, const char* name) {
  return {CUPTI_CB_DOMAIN_DRIVER_API, id, name, name};
}

constexpr ApiFunction runtime_function(CUpti_CallbackId id, const char* name,
                                       const char* callback_name) {
  return {CUPTI_CB_DOMAIN_RUNTIME_API, id, name, callback_name};
}

inline constexpr ApiFunction kMemAlloc =
    driver_function(CUPTI_DRIVER_TRACE_CBID_cuMemAlloc_v2, "cuMemAlloc_v2");
inline constexpr ApiFunction kMemFree =
    driver_function(CUPTI_DRIVER_TRACE_CBID_cuMemFree_v2, "cuMemFree_v2");
inline constexpr ApiFunction kMemHostAlloc =
    driver_function(CUPTI_DRIVER_TRACE_CBID_cuMemHostAlloc, "cuMemHostAlloc");
inline constexpr ApiFunction kMemFreeHost =
    driver_function(CUPTI_DRIVER_TRACE_CBID_cuMemFreeHost, "cuMemFreeHost");
inline constexpr ApiFunction kMemAddressReserve =
    driver_function(CUPTI_DRIVER_TRACE_CBID_cuMemAddressReserve, "cuMemAddressReserve");
inline constexpr ApiFunction kMemAddressFree =
    driver_function(CUPTI_DRIVER_TRACE_CBID_cuMemAddressFree, "cuMemAddressFree");
inline constexpr ApiFunction kMemCreate =
    driver_function(CUPTI_DRIVER_TRACE_CBID_cuMemCreate, "cuMemCreate");
inline constexpr ApiFunction kMemRelease =
    driver_function(CUPTI_DRIVER_TRACE_CBID_cuMemRelease, "cuMemRelease");
inline constexpr ApiFunction kMemMap =
    driver_function(CUPTI_DRIVER_TRACE_CBID_cuMemMap, "cuMemMap");
inline constexpr ApiFunction kMemUnmap =
    driver_function(CUPTI_DRIVER_TRACE_CBID_cuMemUnmap, "cuMemUnmap");
inline constexpr ApiFunction kMalloc =
    runtime_function(CUPTI_RUNTIME_TRACE_CBID_cudaMalloc_v3020, "cudaMalloc", "cudaMalloc_v3020");
inline constexpr ApiFunction kFree =
    runtime_function(CUPTI_RUNTIME_TRACE_CBID_cudaFree_v3020, "cudaFree", "cudaFree_v3020");
inline constexpr ApiFunction kHostAlloc = runtime_function(
    CUPTI_RUNTIME_TRACE_CBID_cudaHostAlloc_v3020, "cudaHostAlloc", "cudaHostAlloc_v3020");
inline constexpr ApiFunction kFreeHost = runtime_function(
    CUPTI_RUNTIME_TRACE_CBID_cudaFreeHost_v3020, "cudaFreeHost", "cudaFreeHost_v3020");

/// Lists every function that is observed.
inline constexpr std::array kAll = {
    kMemAlloc,       kMemFree,   kMemHostAlloc, kMemFreeHost, kMemAddressReserve,
    kMemAddressFree, kMemCreate, kMemRelease,   kMemMap,      kMemUnmap,
    kMalloc,         kFree,      kHostAlloc,    kFreeHost};

}  // namespace api

/// Describes one call, from entry to exit on one thread.
struct ApiCall {
  const ApiFunction& function;
  const void* parameters;  // CUPTI's generated struct
  void* result = nullptr;  // a CUresult or cudaError_t; null until the exit
  // These belong to the observer.
  uint64_t correlation_data = 0;
  uint32_t correlation_id = 0;
  const ApiCall* outer = nullptr;
  const void* told = nullptr;
};

/// Describes memory that was allocated or freed within a call.
struct MemoryChange {
  CUpti_ActivityMemoryOperationType operation;
  CUpti_ActivityMemoryKind kind;
  uint64_t address;
  uint64_t bytes;  // as asked for
};

/// Receives calls, from any thread. An observer is never destroyed, so it outlives every call.
class ApiObserver {
 public:
  virtual void enter(ApiCall& call) = 0;
  virtual void exit(ApiCall& call) = 0;
  virtual void memory_changed(const MemoryChange& change) = 0;

 protected:
  ~ApiObserver() = default;
};

}  // namespace shardlens::profiler

extern "C" std::atomic<shardlens::profiler::ApiObserver*> shardlens_null_api_observer;

namespace shardlens::profiler {

inline ApiObserver* api_observer() {
  return shardlens_null_api_observer.load(std::memory_order_acquire);
}

/// Answers a call with `body()`, and tells the observer before and after.
template <class Parameters, class Body>
auto observe_call(const ApiFunction& function, const Parameters& parameters, const Body& body) {
  ApiObserver* const observer = api_observer();
  if (observer == nullptr) return body();
  ApiCall call{function, &parameters};
  observer->enter(call);
  auto result = body();
  call.result = &result;
  observer->exit(call);
  return result;
}

inline void tell_memory_changed(const MemoryChange& change) {
  if (ApiObserver* const observer = api_observer()) observer->memory_changed(change);
}

}  // namespace shardlens::profiler
