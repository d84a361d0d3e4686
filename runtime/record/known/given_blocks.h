// Follows which blocks PyTorch's allocator has given out, so that an address tells whose it is.
// Standard library only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace shardlens::runtime {

/// Holds the blocks that PyTorch's allocator has given out. All threads may call.
class GivenBlocks {
 public:
  void add(uint64_t address, size_t bytes) {
    const std::lock_guard lock(mutex_);
    bytes_[address] = bytes;
  }

  void remove(uint64_t address) {
    const std::lock_guard lock(mutex_);
    bytes_.erase(address);
  }

  /// Returns the first address and the bytes of the block around an address, if there is one.
  std::optional<std::pair<uint64_t, size_t>> around(uint64_t address) {
    const std::lock_guard lock(mutex_);
    auto block = bytes_.upper_bound(address);
    if (block == bytes_.begin()) return std::nullopt;
    --block;
    return address - block->first < block->second ? std::optional(*block) : std::nullopt;
  }

 private:
  std::mutex mutex_;
  std::map<uint64_t, size_t> bytes_;  // by first address
};

}  // namespace shardlens::runtime
