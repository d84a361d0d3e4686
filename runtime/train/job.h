// A checked training job: everything that the launcher decides before the first rank starts, and
// that every rank then shares. Making one reads from the disk, and writes nothing.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/fault.h"
#include "models/data/dataset.h"
#include "models/data/image_folder.h"
#include "models/spec.h"
#include "planner/config/checkpointing.h"
#include "planner/config/recording.h"
#include "planner/config/strategy.h"
#include "planner/config/training_data.h"
#include "planner/schedule/schedule.h"
#include "runtime/checkpoint/fence.h"
#include "runtime/comm/board/board.h"
#include "runtime/comm/membership.h"
#include "runtime/train/own_training.h"

namespace shardlens::runtime {

using planner::DataKind;

/// Describes one start of the ranks. A run may need several.
struct Attempt {
  Fence fence;            // decides which attempt may write into the run's folder
  int64_t restarts = 0;   // how often the supervisor started ranks before
  bool verifies = false;  // its ranks verify the checkpoint, which is still unread
};

struct Job {
  planner::Config config;
  Device device;
  planner::Strategy strategy;
  planner::Recording recording;
  planner::Checkpointing checkpointing;
  Attempt attempt{};
  std::optional<std::filesystem::path> resume{};  // the checkpoint that it resumes from
  Membership place{};         // of this process, if another launcher has started it
  std::vector<int> ranks;     // real ranks, not simulated; the first writes metrics and result
  int gpus = 0;               // that this process sees; the ranks of a host take turns
  std::string notice;         // why values mean nothing; empty: they are real
  Problem init_unverified{};  // why --init cannot be verified; nothing: it was verified
  models::ModelSpec spec;
  std::optional<OwnTraining> own;  // the program's own model and samples
  planner::TrainingData found_data{};
  models::Dataset data;        // of IDX files
  models::ImageFolder folder;  // of image files
  planner::Schedule train;
  planner::Schedule evaluate;
  int64_t steps_per_epoch = 0;
  int64_t steps = 0;  // in all

  /// Returns how many of the ranks share this host's memory.
  int64_t ranks_here() const {
    return place.is_alone() ? static_cast<int64_t>(ranks.size()) : place.local_world_size;
  }
  bool writes_results(int rank) const { return rank == ranks.front(); }
};

/// Returns how long a rank waits for others, which --timeout says.
std::chrono::milliseconds deadline_of(const planner::Config& config);

/// Replaces the device `auto` by one that this host has.
void choose_device(planner::Config& config);

/// Checks a configuration and returns its job. `own` is the program's own training, in place of
/// --model. For a rank that another launcher has started, config.workers must be the world size.
/// Throws std::invalid_argument for anything that the user must fix.
Job prepare_job(const planner::Config& config, const std::optional<OwnTraining>& own = {},
                const Membership& place = {});

/// Returns where a rank is, in words: "step 37, BACKWARD of attention3".
std::string describe(const Job& job, const RankStatus& status);

}  // namespace shardlens::runtime
