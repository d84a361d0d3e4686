// Runs a program beside this one, which goes on meanwhile.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace shardlens {

/// A program that was started. It is asked to end when this object is destroyed, or when the thread
/// that made the object ends, however that happens.
class BackgroundProgram {
 public:
  struct Options {
    std::vector<std::string> command;           // the first word is the program's file
    std::string directory;                      // in which it runs
    std::string log;                            // takes what it prints
    std::vector<std::string> environment = {};  // "NAME=value", beside this program's
  };

  /// Starts it. Throws std::runtime_error if there can be no further process; a program that does
  /// not exist ends with exit code 127.
  explicit BackgroundProgram(const Options& options);
  ~BackgroundProgram();
  BackgroundProgram(const BackgroundProgram&) = delete;
  BackgroundProgram& operator=(const BackgroundProgram&) = delete;

  /// Returns the exit code, 128 plus the signal if a signal has ended it; nothing: it runs still.
  std::optional<int> exit_code();
  /// Asks the program to end. Later calls kill it, with all that it has started, once it had time
  /// to.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;

  pid_t process_ = 0;
  std::optional<int> exit_code_;
  std::optional<Clock::time_point> stopped_at_;
};

}  // namespace shardlens
