// The runtime's calls on device memory, and copies.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstring>

#include "runtime/null_device/device_memory.h"
#include "runtime/null_device/errors.h"

using shardlens::runtime::DeviceMemory;
using shardlens::runtime::result;

namespace {

bool is_on_device(const void* address) {
  return DeviceMemory::is_device_address(reinterpret_cast<uint64_t>(address));
}

/// Zeros stand for what was on the device: always the same, never what the host had there.
cudaError_t copy(void* target, const void* source, size_t bytes) {
  if (bytes == 0 || is_on_device(target)) return cudaSuccess;
  if (is_on_device(source)) {
    std::memset(target, 0, bytes);
  } else {
    std::memmove(target, source, bytes);
  }
  return cudaSuccess;
}

}  // namespace

extern "C" {

cudaError_t cudaMalloc(void** address, size_t bytes) {
  CUdeviceptr allocated = 0;
  const CUresult error = bytes == 0 ? CUDA_SUCCESS : cuMemAlloc(&allocated, bytes);
  *address = reinterpret_cast<void*>(allocated);
  return result(error);
}

cudaError_t cudaFree(void* address) {
  if (address == nullptr) return result(cuInit(0));
  return result(cuMemFree(reinterpret_cast<CUdeviceptr>(address)));
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return result(cuMemGetInfo(free_bytes, total_bytes));
}

cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind) {
  return copy(target, source, bytes);
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
  return copy(target, source, bytes);
}

cudaError_t cudaMemcpy2DAsync(void* target, size_t target_pitch, const void* source,
                              size_t source_pitch, size_t width_bytes, size_t height,
                              cudaMemcpyKind, cudaStream_t) {
  for (size_t row = 0; row < height; ++row) {
    copy(static_cast<char*>(target) + row * target_pitch,
         static_cast<const char*>(source) + row * source_pitch, width_bytes);
  }
  return cudaSuccess;
}

cudaError_t cudaGetSymbolAddress(void** address, const void*) {
  // A variable of a kernel's module: on the device, in no allocation.
  *address = reinterpret_cast<void*>(DeviceMemory::kLastAddress - DeviceMemory::kPageBytes);
  return cudaSuccess;
}

cudaError_t cudaMallocAsync(void** address, size_t, cudaStream_t) {
  *address = nullptr;
  return result(cudaErrorNotSupported);
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int) {
  *pool = nullptr;
  return result(cudaErrorNotSupported);
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) {
  return result(cudaErrorNotSupported);
}

cudaError_t cudaIpcOpenMemHandle(void** address, cudaIpcMemHandle_t, unsigned) {
  *address = nullptr;
  return result(cudaErrorNotSupported);
}

}  // extern "C"
