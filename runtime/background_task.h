// One piece of work at a time on a thread of its own. What it throws is thrown by the next call.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <optional>
#include <thread>

namespace shardlens::runtime {

/// One thread uses it.
class BackgroundTask {
 public:
  /// Is told whether its result is still wanted.
  using Work = std::function<void(const std::atomic<bool>& is_stopped)>;

  BackgroundTask() = default;
  /// Asks the work to stop, and waits for it; what it throws is lost.
  ~BackgroundTask();
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  /// Waits for the work before.
  void start(Work work);
  /// Returns at once.
  void check();
  /// Returns when nothing is left to do.
  void wait();

 private:
  void run(const Work& work);

  std::optional<std::thread> thread_;  // of the work under way
  std::atomic<bool> is_stopped_ = false;
  std::atomic<bool> has_ended_ = false;
  std::exception_ptr failure_;  // written before has_ended_
};

}  // namespace shardlens::runtime
