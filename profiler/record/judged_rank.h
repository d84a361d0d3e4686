// Judges the recordings that a run of a command left: for each rank the report, the verdict, how
// far PyTorch's own counters agree, and what to change.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "profiler/record/advice.h"
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

/// Judges the recordings of a run, by rank, and keeps what it finds beside each (rankR.json).
std::vector<JudgedRank> judge(const RecordOptions& options, const RecordedRun& run);

/// Returns a verdict, all doubts about it, and how far PyTorch's own counters agree.
std::string verdict_text(const JudgedRank& rank);

}  // namespace shardlens::profiler
