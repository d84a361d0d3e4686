// Defines the driver's calls on pinned host memory, which is ordinary memory here, and on the kind
// of memory at an address.
#include "profiler/null_device/driver/pinned.h"

#include <cuda.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "profiler/null_device/driver/api_observer.h"
#include "profiler/null_device/driver/device_memory.h"

using namespace shardlens;
using namespace shardlens::profiler;

namespace {

constexpr size_t kPageBytes = 4096;

uint64_t number(const void* address) { return reinterpret_cast<uint64_t>(address); }

void* at(uint64_t address) { return reinterpret_cast<void*>(address); }

uint64_t page_from(uint64_t address) {
  return (address + kPageBytes - 1) / kPageBytes * kPageBytes;
}

/// The kernel's table of this process's pages.
class PageMap {
 public:
  PageMap() : file_(::open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC)) {}
  ~PageMap() {
    if (file_ >= 0) ::close(file_);
  }
  PageMap(const PageMap&) = delete;
  PageMap& operator=(const PageMap&) = delete;

  /// Returns the bytes of whole pages that have memory of their own. A page that was only read
  /// shares the kernel's page of zeros.
  size_t own_bytes(uint64_t begin, size_t bytes) {
    constexpr uint64_t kIsOwn = uint64_t{1} << 56;
    size_t own = 0;
    for (size_t done = 0; done < bytes; done += entries_.size() * kPageBytes) {
      const size_t asked = std::min(bytes - done, entries_.size() * kPageBytes) / kPageBytes;
      const auto place = static_cast<off_t>((begin + done) / kPageBytes * sizeof(uint64_t));
      const ssize_t read = ::pread(file_, entries_.data(), asked * sizeof(uint64_t), place);
      if (read <= 0) return own;
      const auto end = entries_.begin() + read / static_cast<ssize_t>(sizeof(uint64_t));
      own += kPageBytes *
             static_cast<size_t>(std::count_if(
                 entries_.begin(), end, [](uint64_t entry) { return (entry & kIsOwn) != 0; }));
    }
    return own;
  }

 private:
  int file_;
  std::vector<uint64_t> entries_ = std::vector<uint64_t>(size_t{1} << 16);
};

struct PinnedRange {
  size_t bytes = 0;
  bool is_ours = false;  // mapped here; else the program's own memory, which it registered
};

/// Holds the ranges of host memory that the device may reach.
class PinnedRanges {
 public:
  void add(const void* address, PinnedRange range) {
    const std::scoped_lock lock(mutex_);
    ranges_.emplace(number(address), range);
  }
  /// Removes a range. Returns it, or nothing if none of this kind starts there.
  std::optional<PinnedRange> remove(const void* address, bool is_ours) {
    const std::scoped_lock lock(mutex_);
    const auto found = ranges_.find(number(address));
    if (found == ranges_.end() || found->second.is_ours != is_ours) return std::nullopt;
    const PinnedRange range = found->second;
    ranges_.erase(found);
    return range;
  }
  bool contain(uint64_t address) const { return bytes_from(address) > 0; }

  /// Returns how many bytes, from `address` on, are in a range that was mapped here.
  size_t own_bytes_from(uint64_t address) const { return bytes_from(address, true); }

  template <class Visit>
  void visit_own(const Visit& visit) const {
    const std::scoped_lock lock(mutex_);
    for (const auto& [begin, range] : ranges_) {
      if (range.is_ours) visit(begin, range.bytes);
    }
  }

  size_t untouched_bytes() const {
    const std::scoped_lock lock(mutex_);
    if (ranges_.empty()) return 0;
    PageMap pages;
    size_t untouched = 0;
    for (const auto& [begin, range] : ranges_) {
      if (!range.is_ours) continue;
      const size_t whole = page_from(range.bytes);
      untouched += whole - std::min(whole, pages.own_bytes(begin, whole));
    }
    return untouched;
  }

 private:
  size_t bytes_from(uint64_t address, bool only_ours = false) const {
    const std::scoped_lock lock(mutex_);
    auto after = ranges_.upper_bound(address);
    if (after == ranges_.begin()) return 0;
    const auto& [begin, range] = *--after;
    if (address >= begin + range.bytes || (only_ours && !range.is_ours)) return 0;
    return begin + range.bytes - address;
  }

  mutable std::mutex mutex_;
  std::map<uint64_t, PinnedRange> ranges_;
};

PinnedRanges& ranges() {
  static PinnedRanges& instance = *new PinnedRanges;  // LibTorch frees in static destructors
  return instance;
}

std::atomic<PinnedListener> listener = nullptr;

void tell(bool given, const void* address, size_t bytes) {
  tell_memory_changed({given ? CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION
                             : CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE,
                       CUPTI_ACTIVITY_MEMORY_KIND_PINNED, number(address), bytes});
  if (const PinnedListener now = listener) now(given, number(address), bytes);
}

CUresult host_alloc(void** address, size_t bytes) {
  if (cuInit(0) != CUDA_SUCCESS) return CUDA_ERROR_NOT_INITIALIZED;
  if (bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  void* const mapped = ::mmap(nullptr, page_from(bytes), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  *address = mapped;
  ranges().add(mapped, {.bytes = bytes, .is_ours = true});
  tell(true, mapped, bytes);
  return CUDA_SUCCESS;
}

CUresult free_host(void* address) {
  const std::optional<PinnedRange> range = ranges().remove(address, true);
  if (!range) return CUDA_ERROR_INVALID_VALUE;
  tell(false, address, range->bytes);
  ::munmap(address, page_from(range->bytes));
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
  ranges().add(address, {.bytes = bytes});
  return CUDA_SUCCESS;
}

CUresult cuMemHostUnregister(void* address) {
  return ranges().remove(address, false) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

bool shardlens_null_clear_pinned(void* target, size_t bytes) {
  const uint64_t begin = number(target), end = begin + bytes;
  if (ranges().own_bytes_from(begin) < bytes) return false;
  const uint64_t first = std::min(page_from(begin), end);
  const uint64_t last = std::max(first, end / kPageBytes * kPageBytes);
  std::memset(target, 0, first - begin);
  std::memset(at(last), 0, end - last);
  // A private mapping without memory reads as zero.
  return first == last || ::madvise(at(first), last - first, MADV_DONTNEED) == 0;
}

uint64_t shardlens_null_untouched_pinned_bytes() { return ranges().untouched_bytes(); }

void shardlens_null_listen_to_pinned(PinnedListener now) {
  if (now != nullptr) {
    ranges().visit_own([now](uint64_t address, size_t bytes) { now(true, address, bytes); });
  }
  listener = now;
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
