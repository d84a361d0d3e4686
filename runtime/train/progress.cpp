#include "runtime/train/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace shardlens::runtime {

namespace {

constexpr const char* kClearLine = "\r\x1b[K";

std::string minutes(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(std::max(0.0, seconds)));
  if (whole >= 3600) {
    return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
  }
  return fmt::format("{}:{:02}", whole / 60, whole % 60);
}

std::string bar(double share) {
  constexpr int kWidth = 20;
  const int filled = std::clamp(static_cast<int>(share * kWidth), 0, kWidth);
  return fmt::format("[{}{}]", std::string(filled, '#'), std::string(kWidth - filled, '.'));
}

}  // namespace

std::string progress_line(const ProgressState& state, double seconds_left) {
  const std::string loss = state.loss ? fmt::format("  loss {:.4f}", *state.loss) : "";
  const std::string attempt =
      state.restarts > 0 ? fmt::format("attempt {}  ", state.restarts + 1) : "";
  return fmt::format("{}epoch {}/{}  step {}/{}{}  {:.0f} {}/s  {} left", attempt, state.epoch,
                     state.epochs, state.step, state.steps, loss, state.per_s, state.unit,
                     minutes(seconds_left));
}

void clear_bar() {
  if (::isatty(STDOUT_FILENO) == 0) return;
  std::fputs(kClearLine, stdout);
  std::fflush(stdout);
}

void print_error(const std::string& line) {
  clear_bar();
  std::fputs((line + '\n').c_str(), stderr);
}

Progress::Progress(bool is_started_by_user)
    : terminal_(is_started_by_user && ::isatty(STDOUT_FILENO) != 0), start_(Clock::now()) {
  last_ = start_;
}

Progress::~Progress() { clear(); }

void Progress::update(const ProgressState& state) {
  const auto now = Clock::now();
  if (first_step_ < 0) {
    first_step_ = state.step;
    start_ = now;
  }
  const auto every = terminal_ ? std::chrono::milliseconds(100) : std::chrono::seconds(10);
  if (now - last_ < every) return;
  last_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  const auto done = static_cast<double>(std::max<int64_t>(1, state.step - first_step_));
  draw(state, seconds / done * static_cast<double>(state.steps - state.step));
}

void Progress::draw(const ProgressState& state, double seconds_left) {
  const std::string line = progress_line(state, seconds_left);
  if (!terminal_) {
    std::puts(line.c_str());
    std::fflush(stdout);
    return;
  }
  const double share = static_cast<double>(state.step) / static_cast<double>(state.steps);
  std::fputs(fmt::format("{}{} {}", kClearLine, bar(share), line).c_str(), stdout);
  std::fflush(stdout);
  drawn_ = true;
}

void Progress::clear() {
  if (drawn_) std::fputs(kClearLine, stdout);
  drawn_ = false;
}

void Progress::say(const std::string& line) {
  clear();
  std::puts(line.c_str());
  std::fflush(stdout);
}

}  // namespace shardlens::runtime
