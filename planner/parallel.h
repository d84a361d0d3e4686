// Runs independent work on all cores of the machine.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace shardlens::planner {

/// Calls `work(i)` once for each i below `count`, in no particular order, from several threads. If
/// calls throw, the first exception is rethrown when all threads have ended.
template <class Work>
void for_all(size_t count, const Work& work) {
  std::atomic<size_t> next = 0;
  std::exception_ptr failure;
  std::mutex mutex;
  const auto take = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    }
  };
  {
    const size_t cores = std::max<size_t>(1, std::thread::hardware_concurrency());
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < std::min(cores, count); ++i) threads.emplace_back(take);
    take();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace shardlens::planner
