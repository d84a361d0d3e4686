// Checks a program on the null device, as the program sees it: uses of device memory that are not
// ordered by streams, uses of memory that does not exist, and NCCL calls. Needs neither CUDA nor
// LibTorch; find_null_checks() finds it if the null device is preloaded.
//
// The stub libraries report copies, NCCL's collectives, streams, events and the driver's memory to
// the checker. A kernel's launch names no pointers, so a program declares with `use` which memory
// its kernels touch. It also declares the blocks that its allocator hands out and takes back, which
// LibTorch's trace tracker reports.
//
// Limits. The host counts as one thread: if one thread has waited for something, all have. A query
// of a stream or an event always says "done", and counts as a wait of the host. Kernels order
// streams only by what is declared. cudaStreamPerThread is treated as one stream.
//
// All threads may call.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace shardlens::profiler {

/// Records one NCCL call that moves data. Calls are in order; those of a group come when the group
/// ends. Numbers are NCCL's.
struct NcclCall {
  std::string_view function;  // "ncclAllGather"; static text
  int communicator = 0;       // number in the process, by order of creation from 0
  int ranks = 0;              // of the communicator
  int rank = 0;               // the caller's
  size_t count = 0;           // as passed: per rank for all-gather, reduce-scatter, all-to-all
  int dtype = 0;              // ncclDataType_t
  int reduction = -1;         // ncclRedOp_t; -1: no reduction
  int peer = -1;              // the root, or the other rank of send and receive; -1: none
  const void* input = nullptr;
  void* output = nullptr;
  void* stream = nullptr;
  bool in_group = false;
};

class NullChecks {
 public:
  /// Declares that an operation enqueued in `stream` reads or writes this memory; host memory is
  /// ignored. `what` names the operation in findings, e.g. "FORWARD attention2"; it is copied.
  virtual void use(void* stream, const void* address, size_t bytes, bool writes,
                   const char* what) = 0;

  /// Declares a block that an allocator hands out. It counts as written in `stream`: that write
  /// must be ordered after all earlier uses of the memory.
  virtual void note_allocation(void* stream, const void* address, size_t bytes) = 0;
  /// Declares a block that is freed. Uses from now on, until the memory is handed out again, are
  /// findings. `stream` is the one that the block was allocated in.
  virtual void note_free(void* stream, const void* address, size_t bytes) = 0;

  /// Returns the new findings, one line each and each text once in a process: at most 100 per call,
  /// then a line that counts the rest.
  virtual std::vector<std::string> take_findings() = 0;

  /// Returns the calls since the last time. A program that runs for long has to take them from time
  /// to time: beyond 100000 they are left out, which is a finding.
  virtual std::vector<NcclCall> take_nccl_calls() = 0;

 protected:
  ~NullChecks() = default;
};

}  // namespace shardlens::profiler

extern "C" {
/// Returns the process's checks, which are never destroyed, or null unless SHARDLENS_NULL_CHECK was
/// 1 when the process started.
shardlens::profiler::NullChecks* shardlens_null_checks();
}

namespace shardlens::profiler {

/// Returns null if no null device is loaded or it does not check.
inline NullChecks* find_null_checks() {
  void* const found = ::dlsym(RTLD_DEFAULT, "shardlens_null_checks");
  if (found == nullptr) return nullptr;
  return reinterpret_cast<decltype(&shardlens_null_checks)>(found)();
}

}  // namespace shardlens::profiler
