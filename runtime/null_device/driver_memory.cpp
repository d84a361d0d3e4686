// The driver's calls on memory. libcudart allocates through them, too, so that there is one
// capacity.
#include <cuda.h>

#include "runtime/null_device/device_memory.h"
#include "runtime/null_device/driver.h"

using shardlens::runtime::DeviceMemory;

namespace {

/// Only after cuInit succeeded.
DeviceMemory& memory() {
  // Never destroyed: LibTorch frees memory in destructors of static objects.
  static DeviceMemory& instance =
      *new DeviceMemory(static_cast<uint64_t>(shardlens::runtime::null_gpu()->memory_bytes));
  return instance;
}

CUresult result_of(bool done) { return done ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

}  // namespace

extern "C" {

CUresult cuDeviceTotalMem(size_t* bytes, CUdevice) {
  if (cuInit(0) != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  *bytes = memory().capacity_bytes();
  return CUDA_SUCCESS;
}

CUresult cuMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  if (cuInit(0) != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  *free_bytes = memory().free_bytes();
  *total_bytes = memory().capacity_bytes();
  return CUDA_SUCCESS;
}

CUresult cuMemAlloc(CUdeviceptr* address, size_t bytes) {
  if (cuInit(0) != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const auto allocated = memory().allocate(bytes);
  *address = allocated.value_or(0);
  return allocated ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemFree(CUdeviceptr address) { return result_of(memory().free(address)); }

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *bytes = DeviceMemory::kPageBytes;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t, CUdeviceptr,
                             unsigned long long) {
  if (bytes == 0 || bytes % DeviceMemory::kPageBytes != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto reserved = memory().reserve(bytes);
  *address = reserved.value_or(0);
  return reserved ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  return result_of(memory().unreserve(address, bytes));
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes, const CUmemAllocationProp*,
                     unsigned long long) {
  if (bytes == 0 || bytes % DeviceMemory::kPageBytes != 0) return CUDA_ERROR_INVALID_VALUE;
  const auto created = memory().create(bytes);
  *handle = created.value_or(0);
  return created ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return result_of(memory().release(handle));
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long) {
  return result_of(offset == 0 && memory().map(address, bytes, handle));
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  return result_of(memory().unmap(address, bytes));
}

CUresult cuMemExportToShareableHandle(void*, CUmemGenericAllocationHandle,
                                      CUmemAllocationHandleType, unsigned long long) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle*, void*,
                                        CUmemAllocationHandleType) {
  return CUDA_ERROR_NOT_SUPPORTED;
}

}  // extern "C"
