// The bytes of device memory whose values are known although nothing is computed: bytes that the
// host copied there, that were set, that were copied from known bytes, or that an observer of
// kernels computed instead of them (profiler/record/known/values.h is one). All other bytes are
// unknown, and read as zero.
//
// Life of a byte: unknown when it is allocated; known after a copy, a memset or know(); unknown
// again after forget(), after the next kernel if kernels have no observer, or when too much is
// known (kMostKnownBytes).
//
// Needs SHARDLENS_NULL_KEEP_COPIES=1 (null_device.h); else nothing is ever known. The functions
// below are in libcuda.so.1 of the null device; code outside the stubs finds them with
// find_known_memory(). All threads may call.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardlens::profiler {

/// A copy or a memset of more bytes than this makes its memory unknown rather than known.
inline constexpr size_t kMostBytesOfRange = size_t{1} << 20;

/// know() makes a range of more bytes than this unknown.
inline constexpr size_t kMostBytesOfWideRange = size_t{64} << 20;

/// If more would be known, everything is forgotten: a program with that many known bytes does not
/// need them. A wide range that does not fit is left out instead, and nothing is forgotten.
inline constexpr size_t kMostKnownBytes = size_t{160} << 20;

/// Learns of device activity outside this table.
class KernelObserver {
 public:
  /// Called when this thread launches a kernel, before any of its results are read. The observer
  /// makes everything unknown that the kernel may write.
  virtual void note_launch() = 0;

  /// Called for a kernel that is given these `count` device addresses and reaches memory only
  /// through them.
  virtual void note_launch_with(const uint64_t* addresses, size_t count) = 0;

  /// Called for an unknown value that this thread reads. Returns false if the observer does not
  /// know it either; else it has written `bytes` bytes.
  virtual bool answer(void* target, size_t bytes) = 0;

 protected:
  ~KernelObserver() = default;
};

class KnownMemory {
 public:
  /// Copies the bytes to `target`. Returns false, and writes nothing, if one of them is unknown.
  virtual bool read(void* target, uint64_t address, size_t bytes) = 0;
  virtual bool knows(uint64_t address, size_t bytes) = 0;
  virtual void know(uint64_t address, const void* source, size_t bytes) = 0;
  virtual void forget(uint64_t address, size_t bytes) = 0;
  virtual void forget_all() = 0;

  /// Returns the device addresses in known words of this memory, such as those in a table of
  /// pointers.
  virtual std::vector<uint64_t> addresses_in(uint64_t address, size_t bytes) = 0;

  /// Sets the only observer; a second call replaces it. It must live until the process ends.
  virtual void observe(KernelObserver& observer) = 0;

 protected:
  ~KnownMemory() = default;
};

}  // namespace shardlens::profiler

extern "C" {
/// Returns the process's table, never destroyed, or null unless SHARDLENS_NULL_KEEP_COPIES is 1.
shardlens::profiler::KnownMemory* shardlens_null_known_memory();

/// Returns how often this thread has read an unknown value; 0 if no values are kept.
uint64_t shardlens_null_unknown_reads();

/// The stubs' launches call these: the second if the kernel's addresses are known.
void shardlens_null_launched();
void shardlens_null_launched_with(const uint64_t* addresses, size_t count);
/// The stubs' copies to the host call this for unknown memory.
bool shardlens_null_answer(void* target, size_t bytes);
}

namespace shardlens::profiler {

/// Returns null if no null device is loaded or it keeps no values.
inline KnownMemory* find_known_memory() {
  void* const found = ::dlsym(RTLD_DEFAULT, "shardlens_null_known_memory");
  if (found == nullptr) return nullptr;
  return reinterpret_cast<decltype(&shardlens_null_known_memory)>(found)();
}

}  // namespace shardlens::profiler
