// A checked training job: everything that the launcher decides before the first rank starts, and
// that every rank then shares. Making one touches no disk but to read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "models/spec.h"
#include "planner/image_folder.h"
#include "planner/schedule.h"
#include "planner/strategy.h"
#include "planner/training_data.h"
#include "runtime/comm/board.h"
#include "runtime/dataset.h"
#include "runtime/fence.h"
#include "runtime/membership.h"
#include "runtime/runtime.h"

namespace shardlens::runtime {

using planner::DataKind;

/// One start of the ranks. A run may need several.
struct Attempt {
  Fence fence;            // who may write into the run's folder
  int64_t restarts = 0;   // by the supervisor, before this one
  bool verifies = false;  // nobody has read the checkpoint that it goes on from: its ranks do
};

struct Job {
  planner::Config config;
  planner::Device device;
  planner::Strategy strategy;
  planner::Recording recording;
  planner::Checkpointing checkpointing;
  Attempt attempt{};
  std::optional<std::filesystem::path> resume{};  // the checkpoint that it goes on from
  Membership place{};      // of this process, where another launcher has started it
  std::vector<int> ranks;  // those that are no pretence; the first one writes metrics and result
  int gpus = 0;            // that this process sees, which the ranks of a host take in turn
  std::string notice;      // why values mean nothing; empty: they do
  std::string init_unverified{};  // why nobody knows that --init is as it was written; empty: it is
  models::ModelSpec spec;
  std::optional<OwnTraining> own;  // the program's own model and samples
  planner::TrainingData found_data{};
  Dataset data;                 // of IDX files
  planner::ImageFolder folder;  // of image files
  planner::Schedule train;
  planner::Schedule evaluate;
  int64_t steps_per_epoch = 0;
  int64_t steps = 0;  // in all

  /// That share this host's memory.
  int64_t ranks_here() const {
    return place.is_alone() ? static_cast<int64_t>(ranks.size()) : place.local_world_size;
  }
  bool writes_results(int rank) const { return rank == ranks.front(); }
};

/// Puts a device in the place of `auto`.
void choose_device(planner::Config& config);

/// `own`: what the program brings along in place of --model. Of a rank that another launcher has
/// started, config.workers are all ranks of the world. Throws std::invalid_argument for whatever
/// the user must mend.
Job prepare_job(const planner::Config& config, const std::optional<OwnTraining>& own = {},
                const Membership& place = {});

/// Where a rank is, in words: "step 37, BACKWARD of attention3".
std::string describe(const Job& job, const RankStatus& status);

}  // namespace shardlens::runtime
