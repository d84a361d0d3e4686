// Tells tests about a run in progress: how far it is, and what happened to it.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/launch/events.h"
#include "tests/support/train_bench.h"

namespace shardlens::tests {

/// The number of steps in metrics.jsonl; 0 without that file.
inline size_t steps_told(const TrainBench& bench) {
  std::ifstream lines(bench.run_file("metrics.jsonl"));
  size_t steps = 0;
  for (std::string line; std::getline(lines, line) && !lines.eof();) ++steps;
  return steps;
}

inline std::vector<runtime::RunEvent> events_of(const TrainBench& bench) {
  return runtime::read_events(bench.run_file("events.jsonl"));
}

inline std::vector<std::string> kinds_of(const TrainBench& bench) {
  std::vector<std::string> kinds;
  for (const runtime::RunEvent& event : events_of(bench)) kinds.push_back(event.kind);
  return kinds;
}

inline int64_t count_of(const TrainBench& bench, const std::string& kind) {
  return std::ranges::count(kinds_of(bench), kind);
}

}  // namespace shardlens::tests
