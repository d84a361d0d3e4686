// Runs a schedule's host actions (Stream::host) in order on their own thread, while the thread that
// posts them keeps the device busy.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

namespace shardlens {

/// Runs posted work in order. Only one thread posts and waits.
class HostQueue {
 public:
  using Work = std::function<void()>;

  /// Without a device there is nothing to overlap with, so `post` does the work at once.
  explicit HostQueue(bool has_device) : has_device_(has_device) {}
  /// Finishes the work that has begun, and drops the rest.
  ~HostQueue();
  HostQueue(const HostQueue&) = delete;
  HostQueue& operator=(const HostQueue&) = delete;

  /// Hands `work` to the thread. Ids must rise from one `join` to the next.
  void post(int action, Work work);

  // Both throw an exception of the work; no work was done after it.
  /// Returns when `action`, which was posted, has been done.
  void wait(int action);
  /// Returns when all work has been done.
  void join();

 private:
  struct PostedWork {
    int action = -1;
    Work work;
  };

  void run();
  /// Returns when no work up to `action` is left. Throws an exception of the work.
  void wait_until_past(std::unique_lock<std::mutex>& lock, int action);

  const bool has_device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<PostedWork> posted_;  // its front is being done
  std::exception_ptr failure_;
  bool ends_ = false;
  std::optional<std::thread> thread_;  // from the first post on
};

}  // namespace shardlens
