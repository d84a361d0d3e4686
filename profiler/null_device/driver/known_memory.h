// The bytes of device memory whose values are known although nothing is computed: what the host
// copied there, what was set, what was copied on from known bytes, and what an observer of kernels
// has computed in their place (profiler/record/known/values.h is one). Everything else is unknown,
// and is zero when it is read.
//
// Life of a byte: unknown when it is allocated; known from a copy, a memset or know(); unknown
// again from forget(), from the next kernel if nobody observes kernels, or when too much is known
// (kMostKnownBytes).
//
// Needs SHARDLENS_NULL_KEEP_COPIES=1 (null_device.h); else nothing is ever known. The functions
// below are in libcuda.so.1 of the null device; others than the stubs find them by
// find_known_memory(). All threads may call.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace shardlens::profiler {

/// A copy or a memset of more bytes than this makes its memory unknown rather than known.
inline constexpr size_t kMostBytesOfRange = size_t{1} << 20;

/// know() makes nothing known of more bytes than these.
inline constexpr size_t kMostBytesOfWideRange = size_t{64} << 20;

/// If more would be known all is forgotten: a program that needs so much has no use for it. But a
/// wide range is left out, and nothing is forgotten for it.
inline constexpr size_t kMostKnownBytes = size_t{160} << 20;

/// Is told of what happens on the device outside of this table.
class KernelObserver {
 public:
  /// Is called when this thread launches a kernel, before any of its results are read. The observer
  /// makes unknown what the kernel may write.
  virtual void note_launch() = 0;

  /// The same of a kernel that is given these `count` device addresses and reaches no other memory
  /// than by them.
  virtual void note_launch_with(const uint64_t* addresses, size_t count) = 0;

  /// Is asked for a value that this thread reads and that is unknown. Returns false if the observer
  /// does not know it either; else it has written `bytes` bytes.
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

  /// Returns the device addresses that known words of this memory hold, as tables of pointers do.
  virtual std::vector<uint64_t> addresses_in(uint64_t address, size_t bytes) = 0;

  /// The observer must live until the process ends. There is one; a second call replaces it.
  virtual void observe(KernelObserver& observer) = 0;

 protected:
  ~KnownMemory() = default;
};

}  // namespace shardlens::profiler

extern "C" {
/// Returns the process's table, never destroyed, or null unless SHARDLENS_NULL_KEEP_COPIES is 1.
shardlens::profiler::KnownMemory* shardlens_null_known_memory();

/// Returns how often this thread has read a value that nobody knew; 0 where none is ever known.
uint64_t shardlens_null_unknown_reads();

/// Are called by the stubs' launches; the second where it is known what the kernel is given.
void shardlens_null_launched();
void shardlens_null_launched_with(const uint64_t* addresses, size_t count);
/// Is called by the stubs' copies to the host, with memory that is unknown.
bool shardlens_null_answer(void* target, size_t bytes);
}

namespace shardlens::profiler {

/// Returns null if no null device is loaded or it knows nothing.
inline KnownMemory* find_known_memory() {
  void* const found = ::dlsym(RTLD_DEFAULT, "shardlens_null_known_memory");
  if (found == nullptr) return nullptr;
  return reinterpret_cast<decltype(&shardlens_null_known_memory)>(found)();
}

}  // namespace shardlens::profiler
