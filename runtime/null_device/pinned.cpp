// The runtime's calls on pinned host memory, which is ordinary memory here, and on what an address
// is.
#include <cuda_runtime_api.h>

#include <cstdint>
#include <cstdlib>
#include <map>
#include <mutex>

#include "runtime/null_device/device_memory.h"
#include "runtime/null_device/errors.h"

using shardlens::runtime::DeviceMemory;
using shardlens::runtime::result;

namespace {

constexpr size_t kPageBytes = 4096;

/// Ranges that the device may reach.
class PinnedRanges {
 public:
  void add(const void* address, size_t bytes) {
    const std::scoped_lock lock(mutex_);
    ranges_.emplace(reinterpret_cast<uint64_t>(address), bytes);
  }
  bool remove(const void* address) {
    const std::scoped_lock lock(mutex_);
    return ranges_.erase(reinterpret_cast<uint64_t>(address)) == 1;
  }
  bool contain(const void* address) const {
    const std::scoped_lock lock(mutex_);
    const auto at = reinterpret_cast<uint64_t>(address);
    auto after = ranges_.upper_bound(at);
    if (after == ranges_.begin()) return false;
    --after;
    return at < after->first + after->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<uint64_t, size_t> ranges_;
};

PinnedRanges& ranges() {
  static PinnedRanges& instance = *new PinnedRanges;  // LibTorch frees in static destructors
  return instance;
}

}  // namespace

extern "C" {

cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  const size_t pages_bytes = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  *address = std::aligned_alloc(kPageBytes, pages_bytes);
  if (*address == nullptr) return result(cudaErrorMemoryAllocation);
  ranges().add(*address, pages_bytes);
  return cudaSuccess;
}

cudaError_t cudaFreeHost(void* address) {
  if (address == nullptr) return cudaSuccess;
  if (!ranges().remove(address)) return result(cudaErrorInvalidValue);
  std::free(address);
  return cudaSuccess;
}

cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned) {
  ranges().add(address, bytes);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* address) {
  return result(ranges().remove(address) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  *attributes = {};
  void* const plain = const_cast<void*>(address);
  if (DeviceMemory::is_device_address(reinterpret_cast<uint64_t>(address))) {
    attributes->type = cudaMemoryTypeDevice;
    attributes->devicePointer = plain;
  } else if (ranges().contain(address)) {
    attributes->type = cudaMemoryTypeHost;
    attributes->devicePointer = plain;
    attributes->hostPointer = plain;
  } else {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -2;  // as the runtime says it of memory that it does not know
    attributes->hostPointer = plain;
  }
  return cudaSuccess;
}

}  // extern "C"
