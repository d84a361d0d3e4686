// Watches operations that a communicator has handed to a device. No other host thread waits for
// them, so a thread here does: every 10 ms it looks at the oldest unfinished one. Past the
// deadline, on an error of the transport or when the abort note is raised, it keeps the reason,
// raises the note for all other ranks and stops the transport.
//
// Standard library only. [Note: one failure] The reason is kept before the transport is stopped,
// so code that sees an operation end because of the stop also sees the reason, by check().
//
// One thread calls begin, issued and fail; the watchdog's thread does the rest.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/fault.h"
#include "runtime/comm/board/abort_note.h"
#include "runtime/comm/communicator.h"

namespace shardlens::runtime {

/// Gives the watchdog its view of the transport and the device.
class WatchdogTarget {
 public:
  virtual ~WatchdogTarget() = default;
  /// Called once, on the watchdog's thread, before anything else.
  virtual void enter_thread() {}
  /// True if the device has passed mark `mark`. Any thread; about 1 us. Throws std::runtime_error
  /// if the device has failed.
  virtual bool has_passed(size_t mark) = 0;
  /// Returns what has failed, or nothing. It must not wait for the thread that issues.
  virtual Problem error() = 0;
  /// Ends what the device is doing. Called at most once; returns within seconds.
  virtual void stop() noexcept = 0;
};

struct WatchdogOptions {
  int rank = 0;
  std::chrono::nanoseconds deadline = std::chrono::seconds(60);
  AbortNote* note = nullptr;  // must outlive the watchdog
};

class Watchdog {
 public:
  /// The most operations in flight at once, each with a mark below this.
  static constexpr size_t kMarks = 256;
  static constexpr std::chrono::milliseconds kPeriod{10};

  Watchdog(WatchdogTarget& watched, const WatchdogOptions& options);
  /// Stops watching; operations in flight stay in flight.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// Returns a mark for an operation that is about to be handed over. Its deadline counts from
  /// now, or from the end of the operation before it. Waits while kMarks are in flight. Throws
  /// CommunicationError as check does.
  size_t begin(const Operation& operation);
  /// Says that the mark is now behind the operation on the device, so it may be polled.
  void note_issue(size_t mark);

  /// Throws CommunicationError if an operation has failed: the same text at every call.
  void check(const Operation& operation);
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }
  /// Records that the operation failed on the host, and throws CommunicationError.
  [[noreturn]] void fail(const Operation& operation, const std::string& what);

 private:
  struct Flight {
    int64_t step = 0;
    std::string_view kind{};
    std::string group;  // a copy, since the caller's may end with its wait
    int bucket = -1;
    bool issued = false;
  };

  void watch();
  void look();
  void retire();
  void keep_failure(const std::string& text, Fault fault = Fault::connection);
  std::string oldest_text() const;

  WatchdogTarget& watched_;
  WatchdogOptions options_;
  std::atomic<bool> failed_ = false;

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Flight> flights_;  // [kMarks], a ring
  size_t oldest_ = 0;
  size_t in_flight_ = 0;
  std::chrono::nanoseconds age_{0};  // how long the oldest has been the oldest
  Problem failure_;                  // nothing: alive
  bool ending_ = false;

  std::thread thread_;  // last: it uses all of the above
};

}  // namespace shardlens::runtime
