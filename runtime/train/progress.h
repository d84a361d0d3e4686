// Shows a person the progress of a training run: one bar that is redrawn on a terminal, plain lines
// elsewhere. Only rank 0 shows it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace shardlens::runtime {

/// Returns how long something that began at `start` has taken.
inline double ms_since(std::chrono::steady_clock::time_point start) {
  const auto elapsed = std::chrono::steady_clock::now() - start;
  return std::chrono::duration<double, std::milli>(elapsed).count();
}

struct ProgressState {
  int64_t restarts = 0;  // the attempt's number is one more
  int64_t step = 0;      // steps done
  int64_t steps = 0;     // in all
  int64_t epoch = 0;
  int64_t epochs = 0;
  std::optional<double> loss;   // empty if values mean nothing
  std::string unit = "images";  // "tokens", ...
  double per_s = 0;
};

/// Returns "epoch 1/1 step 312/469 loss 0.6123 1120 images/s 0:41 left"; after a restart it begins
/// with "attempt 2 ".
std::string progress_line(const ProgressState& state, double seconds_left);

/// Removes the bar of a rank that can no longer remove it.
void clear_bar();

/// Prints a line on standard error, below the bar if there is one. Does not throw if the line
/// cannot be written: the process that reads the output may have been killed.
void print_error(const std::string& line);

class Progress {
 public:
  /// Draws on standard output; a bar only if that is a terminal.
  /// A bar, if standard output is a terminal and the user started this program. Another launcher
  /// may pass what it takes for a terminal on to a file (mpirun does).
  explicit Progress(bool is_started_by_user);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows the state. Cheap: draws ten times a second on a terminal, a line every ten seconds
  /// elsewhere.
  void update(const ProgressState& state);
  /// Prints a line that stays.
  void say(const std::string& line);

 private:
  using Clock = std::chrono::steady_clock;

  void draw(const ProgressState& state, double seconds_left);
  void clear();

  bool terminal_;
  bool drawn_ = false;
  Clock::time_point start_;
  Clock::time_point last_;
  int64_t first_step_ = -1;
};

}  // namespace shardlens::runtime
