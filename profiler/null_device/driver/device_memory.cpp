#include "profiler/null_device/driver/device_memory.h"

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
  check(used_bytes_ <= capacity_bytes_, "the null device gave more than it has");
  if (bytes > capacity_bytes_ - used_bytes_) return false;
  used_bytes_ += bytes;
  return true;
}

std::optional<uint64_t> DeviceMemory::next_addresses(uint64_t bytes) {
  // A page stays free between two ranges, so an address past the end of one belongs to none.
  if (bytes > kVariableAddress - next_address_) return std::nullopt;
  const uint64_t address = next_address_;
  next_address_ += bytes + kPageBytes;
  return address;
}

std::optional<uint64_t> DeviceMemory::allocate(uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  if (bytes > capacity_bytes_) return std::nullopt;
  const uint64_t pages_bytes = whole_pages(bytes);
  if (!take(pages_bytes)) return std::nullopt;
  const std::optional<uint64_t> address = next_addresses(pages_bytes);
  if (address) {
    allocations_.emplace(*address, bytes);
  } else {
    used_bytes_ -= pages_bytes;
  }
  return address;
}

std::optional<uint64_t> DeviceMemory::free(uint64_t address) {
  const std::scoped_lock lock(mutex_);
  const auto found = allocations_.extract(address);
  if (found.empty()) return std::nullopt;
  const uint64_t pages_bytes = whole_pages(found.mapped());
  check(pages_bytes <= used_bytes_, "the null device gets back more than it gave");
  used_bytes_ -= pages_bytes;
  return found.mapped();
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
    --physical_.at(it->second.handle).mappings;
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
  check(found != physical_.end() && found->second.mappings >= 0, "a mapping of no memory");
  if (found->second.held || found->second.mappings > 0) return;
  check(found->second.bytes <= used_bytes_, "the null device gets back more than it gave");
  used_bytes_ -= found->second.bytes;
  physical_.erase(found);
}

}  // namespace shardlens::profiler
