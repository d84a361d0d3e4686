// A model and samples that a program supplies in place of --model and --data.
#pragma once

#include "models/model.h"
#include "models/own_data.h"

namespace shardlens::runtime {

struct OwnTraining {
  models::OwnModel model;
  models::OwnData train{};  // no samples: one random batch, as with --data synthetic
  models::OwnData test{};   // no samples: no test; else correct classes are counted
};

}  // namespace shardlens::runtime
