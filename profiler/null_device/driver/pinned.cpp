// Defines the driver's calls on pinned host memory, which is ordinary memory here, and on the kind
// of memory at an address.
#include <cuda.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>

#include "profiler/null_device/driver/api_observer.h"
#include "profiler/null_device/driver/device_memory.h"

using namespace shardlens;
using namespace shardlens::profiler;

namespace {

constexpr size_t kPageBytes = 4096;

uint64_t number(const void* address) { return reinterpret_cast<uint64_t>(address); }

/// Holds the ranges of host memory that the device may reach.
class PinnedRanges {
 public:
  void add(const void* address, size_t bytes) {
    const std::scoped_lock lock(mutex_);
    ranges_.emplace(number(address), bytes);
  }
  /// Removes a range. Returns its bytes, or nothing if no range starts there.
  std::optional<size_t> remove(const void* address) {
    const std::scoped_lock lock(mutex_);
    const auto found = ranges_.extract(number(address));
    if (found.empty()) return std::nullopt;
    return found.mapped();
  }
  bool contain(uint64_t address) const {
    const std::scoped_lock lock(mutex_);
    auto after = ranges_.upper_bound(address);
    if (after == ranges_.begin()) return false;
    --after;
    return address < after->first + after->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, size_t> ranges_;
};

PinnedRanges& ranges() {
  static PinnedRanges& instance = *new PinnedRanges;  // LibTorch frees in static destructors
  return instance;
}

void tell(CUpti_ActivityMemoryOperationType operation, const void* address, size_t bytes) {
  tell_memory_changed({operation, CUPTI_ACTIVITY_MEMORY_KIND_PINNED, number(address), bytes});
}

CUresult host_alloc(void** address, size_t bytes) {
  if (cuInit(0) != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const size_t pages_bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  *address = std::aligned_alloc(kPageBytes, pages_bytes);
  if (*address == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  ranges().add(*address, bytes);
  tell(CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION, *address, bytes);
  return CUDA_SUCCESS;
}

CUresult free_host(void* address) {
  const std::optional<size_t> bytes = ranges().remove(address);
  if (!bytes) return CUDA_ERROR_INVALID_VALUE;
  tell(CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE, address, *bytes);
  std::free(address);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

CUresult cuMemHostAlloc(void** address, size_t bytes, unsigned flags) {
  return observe_call(api::kMemHostAlloc, cuMemHostAlloc_params{address, bytes, flags},
                      [&] { return host_alloc(address, bytes); });
}

CUresult cuMemFreeHost(void* address) {
  return observe_call(api::kMemFreeHost, cuMemFreeHost_params{address},
                      [&] { return free_host(address); });
}

CUresult cuMemHostRegister(void* address, size_t bytes, unsigned) {
  ranges().add(address, bytes);
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* address) {
  return ranges().remove(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuPointerGetAttribute(void* value, CUpointer_attribute name, CUdeviceptr address) {
  if (name == CU_POINTER_ATTRIBUTE_DEVICE_POINTER && DeviceMemory::is_device_address(address)) {
    *static_cast<CUdeviceptr*>(value) = address;
    return CUDA_SUCCESS;
  }
  if (name != CU_POINTER_ATTRIBUTE_MEMORY_TYPE) return CUDA_ERROR_NOT_SUPPORTED;
  auto& type = *static_cast<CUmemorytype*>(value);
  if (DeviceMemory::is_device_address(address)) {
    type = CU_MEMORYTYPE_DEVICE;
  } else if (ranges().contain(address)) {
    type = CU_MEMORYTYPE_HOST;
  } else {
    return CUDA_ERROR_INVALID_VALUE;
  }
  return CUDA_SUCCESS;
}

}  // extern "C"
