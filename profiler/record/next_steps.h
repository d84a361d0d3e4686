// Says what to do after a program was recorded: how to look at the recording, how to guard it, and,
// if memory is short, which options are known to reduce the largest category.
#pragma once

#include <string>
#include <vector>

#include "profiler/record/record_verdict.h"
#include "profiler/report/report.h"

namespace shardlens::profiler {

/// Returns what may reduce this rank's memory, one line each, with the reason first. No line
/// promises anything: how much an option saves depends on the program.
std::vector<std::string> ways_to_take_less(const RankReport& report, const RecordVerdict& verdict);

/// Returns the lines under "next" for the recordings in the folder `out`, which has at least one.
/// Verdicts are in the order of the reports.
std::string next_steps(const std::string& out, const std::vector<RankReport>& reports,
                       const std::vector<RecordVerdict>& verdicts);

}  // namespace shardlens::profiler
