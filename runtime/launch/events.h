// RUN/events.jsonl: what happened to a run over all its attempts, one line of JSON per event.
//
//   {"time":"2026-11-21T22:51:13.042Z","generation":3,"kind":"killed","rank":1,"step":57,
//    "text":"rank 1 was killed by signal 9 (Killed); last seen in training, step 57, ..."}
//
//   time        UTC, to the millisecond
//   generation  number of the attempt, counted from 1 over all starts of the run
//   rank, step  null if the event concerns none; step counts steps done
//   kind        started, resumed (from a checkpoint), checkpoint_damaged (passed over),
//               a fault: failed, killed, hung, connection, lost, disk_full, disk_failed,
//               overtaken, out_of_memory, wrong_use, interrupted (base/fault.h),
//               host_out_of_memory (the kernel ended processes of a host; the fault follows),
//               restarted, gave_up (why no attempt follows), preempted, finished
//
// Only the launcher writes, or rank 0 if another launcher has started the ranks. If rank 0 is gone,
// another rank writes how the attempt ended; if all are gone, the next attempt does. Each line is
// synced before the run continues; a crash can leave half a line, which readers skip.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace shardlens::runtime {

struct RunEvent {
  std::string time{};  // filled in by add
  int64_t generation = 0;
  std::string kind;
  std::optional<int> rank{};
  std::optional<int64_t> step{};
  std::string text;
};

inline constexpr const char* kMemoryKills = "host_out_of_memory";

class EventLog {
 public:
  explicit EventLog(std::filesystem::path path) : path_(std::move(path)) {}

  /// Adds the event to the file. If the disk fails, it does not throw: the line is then written
  /// with the next one.
  void add(RunEvent event);

  /// Adds how an attempt has ended, unless another process has done so. Returns true if it did.
  bool add_end(RunEvent event);

  /// Adds the event unless the file has one of this attempt, kind and text.
  void add_once(RunEvent event);

 private:
  std::filesystem::path path_;
  std::vector<std::string> unwritten_;
};

/// Returns the events in the order of the file, and skips lines that are not events. Empty if the
/// file is missing.
std::vector<RunEvent> read_events(const std::filesystem::path& path);

/// True if the events say how the attempt has ended.
bool has_ended(const std::vector<RunEvent>& events, int64_t generation);

}  // namespace shardlens::runtime
