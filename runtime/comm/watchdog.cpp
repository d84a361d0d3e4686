#include "runtime/comm/watchdog.h"

#include <algorithm>

#include "base/check.h"
#include "runtime/comm/operation_text.h"

namespace shardlens::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kNap(50);

}  // namespace

Watchdog::Watchdog(WatchdogTarget& watched, const WatchdogOptions& options)
    : watched_(watched), options_(options), flights_(kMarks) {
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

size_t Watchdog::begin(const Operation& operation) {
  check(operation);
  std::unique_lock lock(mutex_);
  while (in_flight_ == kMarks) {
    retire();
    if (in_flight_ < kMarks) break;
    lock.unlock();
    check(operation);
    std::this_thread::sleep_for(kNap);
    lock.lock();
  }
  if (in_flight_ == 0) age_ = std::chrono::nanoseconds::zero();
  shardlens::check(in_flight_ < kMarks, "watchdog: an operation takes the mark of another");
  const size_t mark = (oldest_ + in_flight_++) % kMarks;
  Flight& flight = flights_[mark];
  flight.step = operation.step;
  flight.kind = operation.kind;
  flight.group.assign(operation.group);
  flight.bucket = operation.bucket;
  flight.issued = false;
  return mark;
}

void Watchdog::note_issue(size_t mark) {
  const std::scoped_lock lock(mutex_);
  shardlens::check(mark < kMarks && !flights_[mark].issued,
                   "watchdog: an operation is issued twice");
  flights_[mark].issued = true;
}

void Watchdog::check(const Operation& operation) {
  if (!has_failed() && !options_.note->is_raised()) return;
  const std::scoped_lock lock(mutex_);
  if (!failure_) {
    keep_failure(to_text(options_.rank, operation) + ": stopped: " + options_.note->reason());
  }
  throw CommunicationError(*failure_);
}

void Watchdog::fail(const Operation& operation, const std::string& what) {
  const std::scoped_lock lock(mutex_);
  keep_failure(to_text(options_.rank, operation) + ": " + what);
  throw CommunicationError(*failure_);
}

// Looks at the oldest operation every period. Time spent stopped (Ctrl-Z, a debugger) does not
// count against the device: each look counts at most twice its period.
void Watchdog::watch() {
  watched_.enter_thread();
  Clock::time_point before = Clock::now();
  std::unique_lock lock(mutex_);
  while (!ending_) {
    wake_.wait_for(lock, kPeriod, [this] { return ending_; });
    const Clock::time_point now = Clock::now();
    age_ += std::min<std::chrono::nanoseconds>(now - before, 2 * kPeriod);
    before = now;
    look();
    if (!failure_) continue;
    lock.unlock();
    watched_.stop();
    return;
  }
}

void Watchdog::look() {
  if (failure_) return;
  retire();
  if (options_.note->is_raised()) {
    return keep_failure(oldest_text() + ": stopped: " + options_.note->reason());
  }
  if (const Problem error = watched_.error()) return keep_failure(oldest_text() + ": " + *error);
  if (in_flight_ > 0 && age_ > options_.deadline) {
    keep_failure(oldest_text() + ": not finished within " + to_text(options_.deadline),
                 Fault::hung);
  }
}

void Watchdog::retire() {
  try {
    while (in_flight_ > 0 && flights_[oldest_].issued && watched_.has_passed(oldest_)) {
      oldest_ = (oldest_ + 1) % kMarks;
      --in_flight_;
      age_ = std::chrono::nanoseconds::zero();
    }
  } catch (const std::exception& error) {
    keep_failure(oldest_text() + ": " + error.what());
  }
}

void Watchdog::keep_failure(const std::string& text, Fault fault) {
  if (failure_) return;
  failure_ = text;
  failed_.store(true, std::memory_order_release);
  options_.note->raise(text, fault);
}

std::string Watchdog::oldest_text() const {
  if (in_flight_ == 0) return "rank " + std::to_string(options_.rank);
  const Flight& flight = flights_[oldest_];
  return to_text(options_.rank, {flight.step, flight.kind, flight.group, flight.bucket});
}

}  // namespace shardlens::runtime
