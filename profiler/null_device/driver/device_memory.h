// Manages the memory of the null device: addresses, and how much of the capacity they hold. None of
// the memory exists. The driver owns it (driver/memory.cpp); all threads may call.
//
// Memory is handed out in pages of 2 MiB, as the real driver does. Each address is below all
// earlier ones: a real driver mostly goes downwards, too (docs/evidence.md), and a freed address is
// never mistaken for a new one.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>

namespace shardlens::profiler {

class DeviceMemory {
 public:
  static constexpr uint64_t kPageBytes = uint64_t{2} << 20;
  // The range is between the addresses of programs and of mapped files under Linux on x86-64 and
  // ARM.
  static constexpr uint64_t kFirstAddress = uint64_t{0x1000} << 32;
  static constexpr uint64_t kLastAddress = uint64_t{0x5000} << 32;
  // This address is above all that are handed out: it stands for the variables of kernels' modules.
  static constexpr uint64_t kVariableAddress = kLastAddress - kPageBytes;

  explicit DeviceMemory(uint64_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}

  static bool is_device_address(uint64_t address) {
    return address >= kFirstAddress && address < kLastAddress;
  }

  uint64_t capacity_bytes() const { return capacity_bytes_; }
  uint64_t free_bytes() const;

  /// Returns the address of new memory, or nothing if the capacity is exceeded.
  std::optional<uint64_t> allocate(uint64_t bytes);
  /// Frees an allocation. Returns the bytes that were asked for, or nothing if none starts there.
  std::optional<uint64_t> free(uint64_t address);

  /// Takes memory that has no address, as a driver's context does, or as much as is left. It is
  /// never given back.
  void take_beside(uint64_t bytes);

  /// Reserves addresses without memory behind them.
  std::optional<uint64_t> reserve(uint64_t bytes);
  bool unreserve(uint64_t address, uint64_t bytes);

  /// Creates memory without an address, and returns a handle. The memory lives until it is released
  /// and no longer mapped.
  std::optional<uint64_t> create(uint64_t bytes);
  bool release(uint64_t handle);

  /// Maps all of a handle's memory at a reserved address where nothing is mapped yet.
  bool map(uint64_t address, uint64_t bytes, uint64_t handle);
  /// Unmaps a range that consists of whole mappings.
  bool unmap(uint64_t address, uint64_t bytes);

 private:
  struct PhysicalMemory {
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
  void give_back(uint64_t bytes);
  void check_sums() const;

  const uint64_t capacity_bytes_;
  mutable std::mutex mutex_;
  uint64_t used_bytes_ = 0;
  uint64_t beside_bytes_ = 0;                   // of these, taken by take_beside()
  uint64_t lowest_address_ = kVariableAddress;  // of those handed out
  uint64_t next_handle_ = 1;
  std::map<uint64_t, uint64_t> allocations_;     // address -> bytes asked for
  std::map<uint64_t, uint64_t> reservations_;    // address -> bytes
  std::map<uint64_t, Mapping> mappings_;         // by address
  std::map<uint64_t, PhysicalMemory> physical_;  // by handle
};

}  // namespace shardlens::profiler
