// The driver layer of a recording: what the CUDA driver gives to anybody in this process and takes
// back, be it LibTorch's allocator, NCCL or cuBLAS. CUPTI calls back on the driver's allocation
// calls; it is loaded at run time, and where it is missing or unwilling there is a reason instead.
//
// Memory that is mapped (cuMemCreate: expandable segments, NCCL) counts from its creation to the
// last release of its handle, not when it is mapped: the driver defers a release until nothing is
// mapped, and those who use it unmap first or at once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace shardlens::profiler {

/// Memory that the driver gave, or takes back.
struct DriverChange {
  bool given = false;
  bool is_pinned_host = false;
  uint64_t address = 0;      // of memory from cuMemCreate: its handle
  int64_t bytes = 0;         // as asked for; 0 where memory goes that was given before the watch
  std::string_view library;  // who asked, e.g. "libnccl.so.2", or the program; empty: not known.
                             // For as long as the call.
};

/// As long as it lives, every change is told. One a process: CUPTI has one subscriber.
class DriverWatch {
 public:
  /// Called on the thread that allocates, inside the driver's call and maybe under the locks of
  /// whoever asked, by one thread at a time, in the order of what happens at one address. It must
  /// not throw, not call CUDA or LibTorch, and not destroy the watch.
  using Sink = std::function<void(const DriverChange&)>;

  /// To be made before the memory that is to be seen is asked for. Does not fail for CUPTI's sake:
  /// see `unavailable`.
  explicit DriverWatch(Sink sink);
  /// The sink is not called once this has returned.
  ~DriverWatch();
  DriverWatch(const DriverWatch&) = delete;
  DriverWatch& operator=(const DriverWatch&) = delete;

  bool is_watching() const { return unavailable_.empty(); }
  /// "CUPTI unavailable: <reason>", one line; empty while it watches.
  const std::string& unavailable() const { return unavailable_; }
  /// The driver's functions that this CUPTI cannot watch, e.g. "cuMemHostAlloc_v2".
  const std::vector<std::string>& not_watched() const { return not_watched_; }

 private:
  class Account;
  class Subscription;

  Account& account_;
  std::unique_ptr<Subscription> subscription_;
  std::string unavailable_;
  std::vector<std::string> not_watched_;
};

}  // namespace shardlens::profiler
