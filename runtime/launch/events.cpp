#include "runtime/launch/events.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "base/durable_files.h"
#include "base/input_file.h"
#include "base/limits.h"
#include "base/strict_json.h"

namespace shardlens::runtime {

namespace {

template <class Number>
nlohmann::ordered_json number_or_null(const std::optional<Number>& number) {
  return number ? nlohmann::ordered_json(*number) : nlohmann::ordered_json();
}

std::string now_text() {
  const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)),
                     (now - seconds).count());
}

/// Keeps other processes that take it out of the file while it lives. A file system without locks
/// costs the exclusion only.
class FileLock {
 public:
  explicit FileLock(const std::filesystem::path& path)
      : file_(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0644)) {
    if (file_ >= 0) ::flock(file_, LOCK_EX);
  }
  ~FileLock() {
    if (file_ >= 0) ::close(file_);
  }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int file_;
};

/// Lists the kinds of events after which an attempt goes on, or that follow its end.
constexpr std::array kOnTheWay = {"started",   "resumed", "checkpoint_damaged",
                                  "restarted", "gave_up", kMemoryKills};

std::string line_of(const RunEvent& event) {
  const nlohmann::ordered_json json = {{"time", event.time},
                                       {"generation", event.generation},
                                       {"kind", event.kind},
                                       {"rank", number_or_null(event.rank)},
                                       {"step", number_or_null(event.step)},
                                       {"text", event.text}};
  // Texts from the system may not be UTF-8.
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

void EventLog::add(RunEvent event) {
  event.time = now_text();
  unwritten_.push_back(line_of(event));
  try {
    while (!unwritten_.empty()) {
      append_line(path_, unwritten_.front());
      unwritten_.erase(unwritten_.begin());
    }
  } catch (const Failure&) {
    return;  // if it matters, the run itself will meet this error of the disk
  }
}

bool EventLog::add_end(RunEvent event) {
  const FileLock lock(path_);
  if (has_ended(read_events(path_), event.generation)) return false;
  add(std::move(event));
  return true;
}

void EventLog::add_once(RunEvent event) {
  const FileLock lock(path_);
  const bool is_told = std::ranges::any_of(read_events(path_), [&](const RunEvent& told) {
    return told.generation == event.generation && told.kind == event.kind &&
           told.text == event.text;
  });
  if (!is_told) add(std::move(event));
}

bool has_ended(const std::vector<RunEvent>& events, int64_t generation) {
  return std::ranges::any_of(events, [&](const RunEvent& event) {
    return event.generation == generation &&
           std::ranges::find(kOnTheWay, event.kind) == kOnTheWay.end();
  });
}

std::vector<RunEvent> read_events(const std::filesystem::path& path) {
  std::vector<RunEvent> events;
  std::istringstream lines(read_file(path, kRecord.bytes).text);
  for (std::string line; std::getline(lines, line);) {
    const auto found = find_json(line);
    const auto kind = found ? text_in(*found, "kind") : std::nullopt;
    if (!kind) continue;
    const auto rank = whole_in(*found, "rank");
    events.push_back({.time = text_in(*found, "time").value_or(""),
                      .generation = whole_in(*found, "generation").value_or(0),
                      .kind = *kind,
                      .rank = rank ? std::optional(static_cast<int>(*rank)) : std::nullopt,
                      .step = whole_in(*found, "step"),
                      .text = text_in(*found, "text").value_or("")});
  }
  return events;
}

}  // namespace shardlens::runtime
