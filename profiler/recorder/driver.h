// The driver layer of a recording: the memory that the CUDA driver gives to any library in this
// process and takes back, be it LibTorch's allocator, NCCL or cuBLAS. CUPTI calls back on the
// driver's allocation calls; it is loaded at run time, and if it is missing or cannot be used,
// DriverWatch::unavailable_reason() says why.
//
// Memory that is mapped (cuMemCreate: expandable segments, NCCL) counts from its creation to the
// last release of its handle, not when it is mapped: the driver defers a release until nothing is
// mapped, and its users unmap first or at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/fault.h"

namespace shardlens::profiler {

/// One allocation by the driver, or one release of memory to it.
struct DriverChange {
  bool given = false;
  bool is_pinned_host = false;
  uint64_t address = 0;      // of memory from cuMemCreate: its handle
  int64_t bytes = 0;         // as asked for; 0 if memory from before the watch is released
  std::string_view library;  // that asked: "libnccl.so.2", or the program; empty: unknown.
                             // The text is valid during the call.
};

/// Passes every change to a sink while it lives. A process has at most one, since CUPTI has one
/// subscriber.
class DriverWatch {
 public:
  /// Called on the thread that allocates, inside the driver's call and maybe under locks of the
  /// library that asked. Calls never overlap, and changes at one address come in the order in which
  /// they happen. It must not throw, not call CUDA or LibTorch, and not destroy the watch.
  using Sink = std::function<void(const DriverChange&)>;

  /// Begins to watch; memory that was requested before is not seen. A failure of CUPTI is not an
  /// error here: see unavailable_reason().
  explicit DriverWatch(Sink sink);
  /// Ends the watch. The sink is not called once this has returned.
  ~DriverWatch();
  DriverWatch(const DriverWatch&) = delete;
  DriverWatch& operator=(const DriverWatch&) = delete;

  bool is_watching() const { return !unavailable_; }
  /// Returns "CUPTI unavailable: <reason>", one line; nothing while it watches.
  const Problem& unavailable_reason() const { return unavailable_; }
  /// Returns the driver's functions that this CUPTI cannot watch, e.g. "cuMemHostAlloc_v2".
  const std::vector<std::string>& not_watched() const { return not_watched_; }

 private:
  class Account;
  class Subscription;

  Account& account_;
  std::unique_ptr<Subscription> subscription_;
  Problem unavailable_;
  std::vector<std::string> not_watched_;
};

}  // namespace shardlens::profiler
