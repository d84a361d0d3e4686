// Does one piece of work at a time on a thread of its own. An exception of the work is thrown by
// the next call.
#pragma once

#include <atomic>
#include <exception>
#include <functional>
#include <optional>
#include <thread>

namespace shardlens {

/// Belongs to one thread: no two threads may call it at once.
class BackgroundTask {
 public:
  /// Does a piece of work. It looks at `is_stopped` to learn that nobody wants its result.
  using Work = std::function<void(const std::atomic<bool>& is_stopped)>;

  BackgroundTask() = default;
  /// Asks the work to stop and waits for it. An exception of the work is lost.
  ~BackgroundTask();
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;

  /// Waits for the work before it, and then starts `work`.
  void start(Work work);
  /// Throws the exception of work that has ended. Returns at once, even if work is under way.
  void check();
  /// Returns when no work is left to do. Throws the exception of the work.
  void wait();

 private:
  void run(const Work& work);

  std::optional<std::thread> thread_;  // of the work under way
  std::atomic<bool> is_stopped_ = false;
  std::atomic<bool> has_ended_ = false;
  std::exception_ptr failure_;  // written before has_ended_
};

}  // namespace shardlens
