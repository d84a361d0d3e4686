#include "profiler/null_device/driver/device_memory.h"

#include <algorithm>

#include "base/check.h"

namespace shardlens::profiler {

namespace {

uint64_t whole_pages(uint64_t bytes) {
  return (bytes + DeviceMemory::kPageBytes - 1) / DeviceMemory::kPageBytes *
         DeviceMemory::kPageBytes;
}

bool is_pages(uint64_t bytes) { return bytes > 0 && bytes % DeviceMemory::kPageBytes == 0; }

using Ranges = std::map<uint64_t, uint64_t>;

}  // namespace

uint64_t DeviceMemory::free_bytes() const {
  const std::scoped_lock lock(mutex_);
  return capacity_bytes_ - used_bytes_;
}

bool DeviceMemory::take(uint64_t bytes) {
  check(bytes % kPageBytes == 0, "null device: memory of half a page");
  check(used_bytes_ <= capacity_bytes_, "null device: more memory is used than there is");
  if (bytes > capacity_bytes_ - used_bytes_) {
    check_sums();
    return false;
  }
  used_bytes_ += bytes;
  return true;
}

void DeviceMemory::give_back(uint64_t bytes) {
  check(bytes <= used_bytes_, "null device: more memory is given back than is used");
  used_bytes_ -= bytes;
  if (allocations_.empty() && physical_.empty()) check_sums();
}

/// Throws std::logic_error unless the bytes in use are the sum of all blocks. It goes through all
/// blocks, so it is only called when the device is full or empty.
void DeviceMemory::check_sums() const {
  uint64_t bytes = beside_bytes_;
  for (const auto& [address, asked_bytes] : allocations_) bytes += whole_pages(asked_bytes);
  for (const auto& [handle, memory] : physical_) bytes += memory.bytes;
  check(bytes == used_bytes_, "null device: the bytes in use are not those of its blocks");
}

std::optional<uint64_t> DeviceMemory::next_addresses(uint64_t bytes) {
  // A page stays free between two ranges, so an address past the end of one is in no range.
  const uint64_t left_bytes = lowest_address_ - kFirstAddress;
  if (left_bytes < kPageBytes || bytes > left_bytes - kPageBytes) return std::nullopt;
  lowest_address_ -= bytes + kPageBytes;
  check(is_device_address(lowest_address_) && lowest_address_ + bytes < kVariableAddress,
        "null device: an address that means something else");
  return lowest_address_;
}

std::optional<uint64_t> DeviceMemory::allocate(uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  if (bytes > capacity_bytes_) return std::nullopt;
  const uint64_t pages_bytes = whole_pages(bytes);
  if (!take(pages_bytes)) return std::nullopt;
  const std::optional<uint64_t> address = next_addresses(pages_bytes);
  if (address) {
    check(allocations_.emplace(*address, bytes).second, "null device: an address is given twice");
  } else {
    give_back(pages_bytes);
  }
  return address;
}

std::optional<uint64_t> DeviceMemory::free(uint64_t address) {
  const std::scoped_lock lock(mutex_);
  const auto found = allocations_.extract(address);
  if (found.empty()) return std::nullopt;
  give_back(whole_pages(found.mapped()));
  return found.mapped();
}

void DeviceMemory::take_beside(uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  const uint64_t taken = std::min(whole_pages(bytes), capacity_bytes_ - used_bytes_);
  used_bytes_ += taken;
  beside_bytes_ += taken;
}

std::optional<uint64_t> DeviceMemory::reserve(uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  if (!is_pages(bytes)) return std::nullopt;
  const std::optional<uint64_t> address = next_addresses(bytes);
  if (address) reservations_.emplace(*address, bytes);
  return address;
}

bool DeviceMemory::unreserve(uint64_t address, uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  const auto found = reservations_.find(address);
  if (found == reservations_.end() || found->second != bytes) return false;
  if (is_mapped(address, bytes)) return false;
  reservations_.erase(found);
  return true;
}

std::optional<uint64_t> DeviceMemory::create(uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  if (!is_pages(bytes) || !take(bytes)) return std::nullopt;
  physical_.emplace(next_handle_, PhysicalMemory{.bytes = bytes});
  return next_handle_++;
}

bool DeviceMemory::release(uint64_t handle) {
  const std::scoped_lock lock(mutex_);
  const auto found = physical_.find(handle);
  if (found == physical_.end() || !found->second.held) return false;
  found->second.held = false;
  drop_if_unused(handle);
  return true;
}

bool DeviceMemory::map(uint64_t address, uint64_t bytes, uint64_t handle) {
  const std::scoped_lock lock(mutex_);
  const auto memory = physical_.find(handle);
  if (memory == physical_.end() || !memory->second.held) return false;
  if (bytes != memory->second.bytes || address % kPageBytes != 0) return false;
  if (!is_reserved(address, bytes) || is_mapped(address, bytes)) return false;
  mappings_.emplace(address, Mapping{bytes, handle});
  ++memory->second.mappings;
  return true;
}

bool DeviceMemory::unmap(uint64_t address, uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  const auto first = mappings_.find(address);
  const uint64_t end = address + bytes;
  uint64_t reached = address;
  auto last = first;
  while (last != mappings_.end() && last->first == reached && reached < end) {
    reached += last->second.bytes;
    ++last;
  }
  if (reached != end || bytes == 0) return false;
  for (auto it = first; it != last; it = mappings_.erase(it)) {
    PhysicalMemory& memory = physical_.at(it->second.handle);
    check(memory.mappings > 0 && memory.bytes == it->second.bytes,
          "null device: memory is unmapped that is mapped nowhere");
    --memory.mappings;
    drop_if_unused(it->second.handle);
  }
  return true;
}

bool DeviceMemory::is_reserved(uint64_t address, uint64_t bytes) const {
  auto after = reservations_.upper_bound(address);
  if (after == reservations_.begin()) return false;
  const Ranges::const_iterator range = --after;
  return address + bytes <= range->first + range->second;
}

bool DeviceMemory::is_mapped(uint64_t address, uint64_t bytes) const {
  auto after = mappings_.lower_bound(address + bytes);
  if (after == mappings_.begin()) return false;
  --after;
  return after->first + after->second.bytes > address;
}

void DeviceMemory::drop_if_unused(uint64_t handle) {
  const auto found = physical_.find(handle);
  check(found != physical_.end() && found->second.mappings >= 0, "null device: no such memory");
  if (found->second.held || found->second.mappings > 0) return;
  const uint64_t bytes = found->second.bytes;
  physical_.erase(found);
  give_back(bytes);
}

}  // namespace shardlens::profiler
