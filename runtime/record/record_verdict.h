// Whether a recorded program fits a GPU.
#pragma once

#include <cstdint>
#include <string>

#include "profiler/report/report.h"

namespace shardlens::runtime {

/// What the recorded process said of itself when it ended.
struct RecordFacts {
  int64_t retries = 0;  // allocations that were served after cached memory was given back
  int64_t steps = 0;
  int64_t shapes = 0;     // that depended on values of a null device, where all are 0
  bool is_known = false;  // false: it ended without a word
};

/// Of rankR.json beside rankR.slp.
RecordFacts read_record_facts(const std::string& recording);

struct RecordVerdict {
  std::string line;   // "fits: 71.4 GiB of 79.2 GiB (...), 7.8 GiB free"
  int exit_code = 0;  // 0 fits, 3 does not, 4 only with retries
};

/// `outside_bytes`: what CUDA, NCCL and others take of the GPU beside PyTorch.
RecordVerdict verdict_of(const profiler::RankReport& report, const RecordFacts& facts,
                         int64_t outside_bytes);

}  // namespace shardlens::runtime
