// Defines the driver's calls on memory. libcudart also allocates through them, so that there is one
// capacity.
#include <cuda.h>

#include <optional>

#include "profiler/null_device/checks/check_feed.h"
#include "profiler/null_device/driver/api_observer.h"
#include "profiler/null_device/driver/device_memory.h"
#include "profiler/null_device/driver/driver.h"
#include "profiler/null_device/outside_figures.h"

using namespace shardlens;
using namespace shardlens::profiler;

namespace {

/// Returns the device's memory. It may only be called after cuInit succeeded.
DeviceMemory& memory() {
  // It is never destroyed, because LibTorch frees memory in destructors of static objects.
  static DeviceMemory& instance = [&]() -> DeviceMemory& {
    const NullDevice& device = null_device();
    auto& made = *new DeviceMemory(static_cast<uint64_t>(device.capacity_bytes));
    made.take_beside(static_cast<uint64_t>(device.beside_bytes));
    return made;
  }();
  return instance;
}

const void* pointer(CUdeviceptr address) { return reinterpret_cast<const void*>(address); }

CUresult result_of(bool done) { return done ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE; }

void tell(CUpti_ActivityMemoryOperationType operation, CUdeviceptr address, uint64_t bytes) {
  tell_memory_changed({operation, CUPTI_ACTIVITY_MEMORY_KIND_DEVICE, address, bytes});
}

CUresult allocate(CUdeviceptr* address, size_t bytes) {
  if (cuInit(0) != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::optional<uint64_t> allocated = memory().allocate(bytes);
  *address = allocated.value_or(0);
  if (!allocated) return CUDA_ERROR_OUT_OF_MEMORY;
  if (check_feed != nullptr) check_feed->memory_given(pointer(*address), bytes);
  tell(CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION, *address, bytes);
  return CUDA_SUCCESS;
}

CUresult free_memory(CUdeviceptr address) {
  const std::optional<uint64_t> bytes = memory().free(address);
  if (!bytes) return cuMemFreeHost(reinterpret_cast<void*>(address));  // managed, or unknown
  if (check_feed != nullptr) {
    check_feed->device_synchronized();
    check_feed->memory_taken_back(pointer(address), *bytes);
  }
  tell(CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE, address, *bytes);
  return CUDA_SUCCESS;
}

bool map(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle handle) {
  const bool mapped = memory().map(address, bytes, handle);
  if (check_feed != nullptr && mapped) check_feed->memory_given(pointer(address), bytes);
  return mapped;
}

bool unmap(CUdeviceptr address, size_t bytes) {
  const bool unmapped = memory().unmap(address, bytes);
  if (check_feed != nullptr && unmapped) check_feed->memory_taken_back(pointer(address), bytes);
  return unmapped;
}

CUresult reserve(CUdeviceptr* address, size_t bytes) {
  if (bytes == 0 || bytes % DeviceMemory::kPageBytes != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::optional<uint64_t> reserved = memory().reserve(bytes);
  *address = reserved.value_or(0);
  return reserved ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult create(CUmemGenericAllocationHandle* handle, size_t bytes) {
  if (bytes == 0 || bytes % DeviceMemory::kPageBytes != 0) return CUDA_ERROR_INVALID_VALUE;
  const std::optional<uint64_t> created = memory().create(bytes);
  *handle = created.value_or(0);
  return created ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

}  // namespace

extern "C" {

void shardlens_null_take_nccl(int ranks, int on_node) {
  const NullDevice& device = null_device();
  if (!device.counts_nccl || cuInit(0) != CUDA_SUCCESS || ranks < 2 || on_node < 1) return;
  const int64_t bytes = published_nccl_bytes(*device.gpu, ranks, on_node);
  memory().take_beside(static_cast<uint64_t>(bytes));
}

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
  return observe_call(api::kMemAlloc, cuMemAlloc_v2_params{address, bytes},
                      [&] { return allocate(address, bytes); });
}

CUresult cuMemFree(CUdeviceptr address) {
  return observe_call(api::kMemFree, cuMemFree_v2_params{address},
                      [&] { return free_memory(address); });
}

CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*,
                                       CUmemAllocationGranularity_flags) {
  *bytes = DeviceMemory::kPageBytes;
  return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr* address, size_t bytes, size_t alignment,
                             CUdeviceptr wanted, unsigned long long flags) {
  return observe_call(api::kMemAddressReserve,
                      cuMemAddressReserve_params{address, bytes, alignment, wanted, flags},
                      [&] { return reserve(address, bytes); });
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  return observe_call(api::kMemAddressFree, cuMemAddressFree_params{address, bytes},
                      [&] { return result_of(memory().unreserve(address, bytes)); });
}

CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                     const CUmemAllocationProp* properties, unsigned long long flags) {
  return observe_call(api::kMemCreate, cuMemCreate_params{handle, bytes, properties, flags},
                      [&] { return create(handle, bytes); });
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
  return observe_call(api::kMemRelease, cuMemRelease_params{handle},
                      [&] { return result_of(memory().release(handle)); });
}

CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                  CUmemGenericAllocationHandle handle, unsigned long long flags) {
  return observe_call(api::kMemMap, cuMemMap_params{address, bytes, offset, handle, flags},
                      [&] { return result_of(offset == 0 && map(address, bytes, handle)); });
}

CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
  return observe_call(api::kMemUnmap, cuMemUnmap_params{address, bytes},
                      [&] { return result_of(unmap(address, bytes)); });
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
