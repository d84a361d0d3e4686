// Defines the runtime's calls on pinned host memory, and on the kind of memory at an address.
#include <cuda_runtime_api.h>

#include <cstdint>

#include "profiler/null_device/cudart/errors.h"
#include "profiler/null_device/driver/api_observer.h"
#include "profiler/null_device/driver/work_feed.h"

using namespace shardlens;
using namespace shardlens::profiler;

namespace {

cudaError_t host_alloc(void** address, size_t bytes, unsigned flags) {
  *address = nullptr;
  return result(bytes == 0 ? CUDA_SUCCESS : cuMemHostAlloc(address, bytes, flags));
}

}  // namespace

extern "C" {

cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned flags) {
  tell_memory_call("cudaHostAlloc", bytes);
  return observe_call(api::kHostAlloc, cudaHostAlloc_v3020_params{address, bytes, flags},
                      [&] { return host_alloc(address, bytes, flags); });
}

cudaError_t cudaFreeHost(void* address) {
  tell_memory_call("cudaFreeHost", 0);
  return observe_call(api::kFreeHost, cudaFreeHost_v3020_params{address}, [&] {
    return result(address == nullptr ? CUDA_SUCCESS : cuMemFreeHost(address));
  });
}

cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned flags) {
  return result(cuMemHostRegister(address, bytes, flags));
}

cudaError_t cudaHostUnregister(void* address) { return result(cuMemHostUnregister(address)); }

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  *attributes = {};
  void* const plain = const_cast<void*>(address);
  CUmemorytype type{};
  const CUresult error = cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                               reinterpret_cast<CUdeviceptr>(address));
  if (error != CUDA_SUCCESS) {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -2;  // the runtime's answer for unknown memory
    attributes->hostPointer = plain;
    return cudaSuccess;
  }
  attributes->type = type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  attributes->devicePointer = plain;
  cudaGetDevice(&attributes->device);
  if (type == CU_MEMORYTYPE_HOST) attributes->hostPointer = plain;
  return cudaSuccess;
}

}  // extern "C"
