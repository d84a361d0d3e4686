// A counter in shared memory that one rank raises and the others wait for.
// Counters grow by one per operation and may wrap: a word has reached a target if it is at most
// half its range ahead. Zero-filled memory is a counter at 0. Each has its own cache line, so that
// waiting for one rank does not slow another.
#pragma once

#include <chrono>
#include <cstdint>
#include <type_traits>

#include "runtime/comm/board/abort_note.h"

namespace shardlens::runtime {

struct alignas(64) FutexWord {
  uint32_t value = 0;    // through std::atomic_ref only, like waiters
  uint32_t waiters = 0;  // ranks asleep in the kernel
};
static_assert(sizeof(FutexWord) == 64 && std::is_trivially_copyable_v<FutexWord>,
              "it is in memory that processes share");

enum class WaitResult { reached, deadline_passed, aborted };

/// Raises the word to `value`. A rank whose wait for `value` returns sees everything that was
/// written before. Enters the kernel only if a rank is asleep.
void publish(FutexWord& word, uint32_t value);

/// Waits until the word has reached `target`: spins for some microseconds, then yields, then
/// sleeps. It notices an abort within 50 ms. It takes the time slept off `left`, so that several
/// waits share one deadline.
WaitResult wait_for(FutexWord& word, uint32_t target, std::chrono::nanoseconds& left,
                    const AbortNote& note);

}  // namespace shardlens::runtime
