#include "runtime/null_device/kept_copies.h"

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include "runtime/null_device/null_device.h"

namespace shardlens::runtime {

namespace {

constexpr size_t kMostBytes = 1 << 20;
constexpr size_t kMostCopies = 256;

struct KeptCopies {
  std::mutex mutex;
  std::map<const void*, std::vector<char>> by_address;
  std::atomic<bool> is_empty = true;
};

/// Returns the copies. They are never destroyed: a program's last frees come after static objects
/// are gone.
KeptCopies& kept() {
  static auto& copies = *new KeptCopies();
  return copies;
}

bool are_kept() {
  static const bool is_on = [] {
    const char* const value = std::getenv(kNullKeepCopiesVariable);
    return value != nullptr && std::string_view(value) == "1";
  }();
  return is_on;
}

}  // namespace

void keep_copy(const void* device_address, const void* source, size_t bytes) {
  if (!are_kept() || bytes > kMostBytes) return;
  KeptCopies& copies = kept();
  const std::lock_guard lock(copies.mutex);
  if (copies.by_address.size() >= kMostCopies) copies.by_address.clear();
  const char* const first = static_cast<const char*>(source);
  copies.by_address[device_address].assign(first, first + bytes);
  copies.is_empty = false;
}

bool give_kept_copy(void* target, const void* device_address, size_t bytes) {
  KeptCopies& copies = kept();
  if (copies.is_empty) return false;
  const std::lock_guard lock(copies.mutex);
  const auto copy = copies.by_address.find(device_address);
  if (copy == copies.by_address.end() || copy->second.size() != bytes) return false;
  std::memcpy(target, copy->second.data(), bytes);
  return true;
}

void forget_kept_copies() {
  KeptCopies& copies = kept();
  if (copies.is_empty) return;
  const std::lock_guard lock(copies.mutex);
  copies.by_address.clear();
  copies.is_empty = true;
}

}  // namespace shardlens::runtime
