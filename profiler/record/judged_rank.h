// Judges the recordings that a run of a command left: for each rank the report, the verdict, how
// far PyTorch's own counters agree, and what to change.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "profiler/record/advice/advice.h"
#include "profiler/record/outside.h"
#include "profiler/record/record_options.h"
#include "profiler/record/record_verdict.h"
#include "profiler/record/recorded_run.h"
#include "profiler/report/report.h"

namespace shardlens::profiler {

struct JudgedRank {
  RankReport report;  // its source is the recording's path
  RecordFacts facts;
  RecordVerdict verdict = {};
  std::optional<Comparison> comparison = {};
  OutsideBytes outside = {};
  std::optional<HostNeed> host = {};  // empty: it pins no memory
  std::vector<Advice> advice = {};
};

/// The facts about a recording that tell whether a replay went as the program did.
struct ReplayedRun {
  std::string path;
  std::string torch;        // the version of PyTorch
  int64_t limit_bytes = 0;  // what PyTorch could reserve
  int64_t allocated_peak_bytes = 0;
  int64_t reserved_peak_bytes = 0;
  int64_t retries = 0;
};

/// Finds what the same requests lead to without a limit and with other addresses. The planner's
/// model of the allocator replays them, which this room does not know.
using ReplayRun = std::function<Replays(const ReplayedRun& run)>;

/// Judges the recordings of a run, by rank, and keeps what it finds beside each (rankR.json).
std::vector<JudgedRank> judge(const RecordOptions& options, const RecordedRun& run,
                              const ReplayRun& replay = {});

/// Returns a verdict, all doubts about it, and how far PyTorch's own counters agree.
std::string verdict_text(const JudgedRank& rank);

}  // namespace shardlens::profiler
