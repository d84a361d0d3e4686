// Whether a recorded program fits a GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "profiler/report/report.h"
#include "runtime/record/accounts.h"

namespace shardlens::runtime {

/// What the recorded process said of itself when it ended.
struct RecordFacts {
  int64_t retries = 0;  // allocations that were served after cached memory was given back
  int64_t steps = 0;
  int64_t shapes = 0;  // that depended on values of a null device, where all are 0
  /// The peaks of PyTorch's own counters, over every reset of the program's.
  std::optional<int64_t> peak_allocated_bytes = {}, peak_reserved_bytes = {};
  std::vector<std::string> doubts = {};  // what the recording may lack, a line each
  bool is_known = false;                 // false: it ended without a word
};

/// Of rankR.json beside rankR.slp.
RecordFacts read_record_facts(const std::string& recording);

/// A recording beside PyTorch's own counters of the same process.
struct CountedPeaks {
  bool is_equal = false;
  std::string line = {};  // "as PyTorch counted: equal", or both peaks of both
};

/// Nothing where the process ended without a word, or has taken nothing.
std::optional<CountedPeaks> counted_peaks(const profiler::RankReport& report,
                                          const RecordFacts& facts);

/// Adds to rankR.json beside the recording what the comparison came to.
void keep_counted_peaks(const std::string& recording, const CountedPeaks& counted);

constexpr int kDoesNotFit = 3;
constexpr int kFitsWithRetries = 4;
constexpr int kNotRecorded = 5;  // or not to the end

struct RecordVerdict {
  std::string line = {};          // "fits: 71.4 GiB of 79.2 GiB (...), 7.8 GiB free"
  int exit_code = 0;              // 0 fits, 3 does not, 4 only with retries, 5: there is no verdict
  bool is_out_of_memory = false;  // a request has failed
};

/// `outside_bytes`: what CUDA, NCCL and others take of the GPU beside PyTorch. `failure`: how the
/// program failed; empty: it did not. Nothing fits of a program that failed, or whose recording was
/// not closed: its peak may have been to come.
RecordVerdict verdict_of(const profiler::RankReport& report, const RecordFacts& facts,
                         int64_t outside_bytes, const std::string& failure);

/// Of `shardlens record`: 3 where memory ran out, however the program ended; else the program's own
/// where it failed; else the worst verdict, of which 3 is certain; 5 without one.
/// `is_out_of_memory`: of a process that has no recording.
int exit_code_of(const CommandEnd& end, const std::vector<RecordVerdict>& verdicts,
                 bool is_out_of_memory);

}  // namespace shardlens::runtime
