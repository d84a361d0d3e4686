// A checked training job: everything that the launcher decides before the first rank starts, and
// that every rank then shares. Making one touches no disk but to read.
#pragma once

#include <cstdint>
#include <string>

#include "models/spec.h"
#include "planner/schedule.h"
#include "planner/strategy.h"
#include "runtime/comm/board.h"
#include "runtime/dataset.h"

namespace shardlens::runtime {

struct Job {
  planner::Config config;
  planner::Strategy strategy;
  models::ModelSpec spec;
  Dataset data;
  planner::Schedule train;
  planner::Schedule evaluate;
  int64_t steps_per_epoch = 0;
  int64_t steps = 0;  // in all
};

/// Throws std::invalid_argument for whatever the user must mend.
Job prepare_job(const planner::Config& config);

/// Where a rank is, in words: "step 37, BACKWARD of attention3".
std::string describe(const Job& job, const RankStatus& status);

}  // namespace shardlens::runtime
