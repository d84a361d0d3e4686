// Judges the recordings that a run of a command left: for each rank the report, the verdict, and
// how far PyTorch's own counters agree.
#pragma once

#include <optional>
#include <string>
#include <vector>

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
};

/// Judges the recordings of a run, by rank, and keeps the comparison beside each.
std::vector<JudgedRank> judge(const RecordOptions& options, const RecordedRun& run);

/// Returns a verdict, all doubts about it, and how far PyTorch's own counters agree.
std::string verdict_text(const JudgedRank& rank);

}  // namespace shardlens::profiler
