#include "runtime/comm/board/futex_word.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <climits>
#include <ctime>

namespace shardlens::runtime {
namespace {

using std::chrono::nanoseconds;
using Clock = std::chrono::steady_clock;

constexpr int kSpins = 1000;  // about 2 us: enough if two ranks finish equal work together
constexpr int kYields = 64;
constexpr nanoseconds kSlice = std::chrono::milliseconds(50);

// Wakes all sleepers. The wake and the wait are not FUTEX_PRIVATE, because ranks are processes.
void futex_wake_all(uint32_t& value) {
  syscall(SYS_futex, &value, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void futex_sleep(uint32_t& value, uint32_t seen, nanoseconds at_most) {
  const timespec timeout{.tv_sec = 0, .tv_nsec = static_cast<long>(at_most.count())};
  syscall(SYS_futex, &value, FUTEX_WAIT, seen, &timeout, nullptr, 0);
}

bool has_reached(uint32_t value, uint32_t target) {
  return static_cast<int32_t>(value - target) >= 0;
}

bool spin(std::atomic_ref<uint32_t> value, uint32_t target) {
  for (int i = 0; i < kSpins + kYields; ++i) {
    if (has_reached(value.load(std::memory_order_acquire), target)) return true;
    if (i >= kSpins) sched_yield();
  }
  return false;
}

// Sleeps until the target is reached. Time spent stopped (Ctrl-Z, a debugger) does not count
// against the peers: each slice counts at most twice its length.
WaitResult sleep_until(FutexWord& word, uint32_t target, nanoseconds& left, const AbortNote& note) {
  const std::atomic_ref<uint32_t> value(word.value);
  Clock::time_point before = Clock::now();
  for (;;) {
    const uint32_t seen = value.load(std::memory_order_seq_cst);
    if (has_reached(seen, target)) return WaitResult::reached;
    if (note.is_raised()) return WaitResult::aborted;
    if (left <= nanoseconds::zero()) return WaitResult::deadline_passed;
    futex_sleep(word.value, seen, std::min(left, kSlice));
    const Clock::time_point now = Clock::now();
    left -= std::min<nanoseconds>(now - before, 2 * kSlice);
    before = now;
  }
}

}  // namespace

// [Note: no lost wake]
// The publisher writes value, then reads waiters; the waiter writes waiters, then reads value. All
// four are sequentially consistent, so at least one of them sees the other's write; and the kernel
// compares value once more before it puts the waiter to sleep.
void publish(FutexWord& word, uint32_t value) {
  std::atomic_ref<uint32_t>(word.value).store(value, std::memory_order_seq_cst);
  if (std::atomic_ref<uint32_t>(word.waiters).load(std::memory_order_seq_cst) != 0) {
    futex_wake_all(word.value);
  }
}

WaitResult wait_for(FutexWord& word, uint32_t target, nanoseconds& left, const AbortNote& note) {
  if (spin(std::atomic_ref<uint32_t>(word.value), target)) return WaitResult::reached;
  const std::atomic_ref<uint32_t> waiters(word.waiters);
  waiters.fetch_add(1, std::memory_order_seq_cst);
  const WaitResult result = sleep_until(word, target, left, note);
  waiters.fetch_sub(1, std::memory_order_seq_cst);
  return result;
}

}  // namespace shardlens::runtime
