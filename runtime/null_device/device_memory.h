// The memory of the null device: addresses and how much of the capacity they hold. No byte of it
// exists. Owned by the driver (driver_memory.cpp), all threads may call.
//
// Memory is given in pages of 2 MiB, as the driver's is. Addresses only rise, so that one which was
// freed is never mistaken for a new one.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace shardlens::runtime {

class DeviceMemory {
 public:
  static constexpr uint64_t kPageBytes = uint64_t{2} << 20;
  // Between what Linux gives to programs and to mapped files on x86-64 and ARM.
  static constexpr uint64_t kFirstAddress = uint64_t{0x1000} << 32;
  static constexpr uint64_t kLastAddress = uint64_t{0x5000} << 32;
  // Past all that is given: it stands for the variables of kernels' modules.
  static constexpr uint64_t kVariableAddress = kLastAddress - kPageBytes;

  explicit DeviceMemory(uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  static bool is_device_address(uint64_t address) {
    return address >= kFirstAddress && address < kLastAddress;
  }

  uint64_t capacity_bytes() const { return capacity_bytes_; }
  uint64_t free_bytes() const;

  /// Memory with its address; nothing where the capacity is exceeded.
  std::optional<uint64_t> allocate(uint64_t bytes);
  /// How many bytes were asked for; nothing where no allocation starts there.
  std::optional<uint64_t> free(uint64_t address);

  /// Addresses without memory behind them.
  std::optional<uint64_t> reserve(uint64_t bytes);
  bool unreserve(uint64_t address, uint64_t bytes);

  /// Memory without an address, a handle. It lives until released and mapped nowhere.
  std::optional<uint64_t> create(uint64_t bytes);
  bool release(uint64_t handle);

  /// Puts all of a handle's memory at a reserved address where nothing is mapped yet.
  bool map(uint64_t address, uint64_t bytes, uint64_t handle);
  /// A range that consists of whole mappings.
  bool unmap(uint64_t address, uint64_t bytes);

 private:
  struct Physical {
    uint64_t bytes = 0;
    int mappings = 0;
    bool held = true;  // not yet released
  };
  struct Mapping {
    uint64_t bytes = 0;
    uint64_t handle = 0;
  };

  bool take(uint64_t bytes);
  std::optional<uint64_t> next_addresses(uint64_t bytes);
  bool is_reserved(uint64_t address, uint64_t bytes) const;
  bool is_mapped(uint64_t address, uint64_t bytes) const;
  void drop_if_unused(uint64_t handle);

  const uint64_t capacity_bytes_;
  mutable std::mutex mutex_;
  uint64_t used_bytes_ = 0;
  uint64_t next_address_ = kFirstAddress;
  uint64_t next_handle_ = 1;
  std::map<uint64_t, uint64_t> allocations_;   // address -> bytes asked for
  std::map<uint64_t, uint64_t> reservations_;  // address -> bytes
  std::map<uint64_t, Mapping> mappings_;       // by address
  std::map<uint64_t, Physical> physical_;      // by handle
};

}  // namespace shardlens::runtime
