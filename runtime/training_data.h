// Which data a model is trained on where nobody says, and how many steps an epoch of them has. No
// LibTorch.
#pragma once

#include <cstdint>
#include <string>

#include "models/spec.h"
#include "planner/strategy.h"

namespace shardlens::runtime {

constexpr const char* kSyntheticData = "synthetic";

/// The packaged images where the model takes such images, noise where it does not: what
/// `--data auto` means.
std::string data_for(const models::ModelSpec& spec);

/// Of so many samples, split over the ranks of a configuration.
int64_t steps_in_epoch(int64_t samples, const planner::Config& config);

/// Of synthetic data, one epoch's.
int64_t synthetic_samples(const planner::Config& config);

/// Counts the samples of `config.data`, which is not `auto`. Throws std::invalid_argument where
/// there are none.
int64_t count_training_samples(const planner::Config& config);

}  // namespace shardlens::runtime
