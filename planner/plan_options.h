// The flags that `shardlens plan` has besides those of train (config/options.h).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/config/config.h"

namespace shardlens::planner {

struct PlanFlags {
  std::string gpu;
  std::string calibration;
  std::string beside;
  std::string engine = "shardlens";
  std::string torch;
  std::string solve;
  bool search = false;
  std::string budget;
  std::string config_out;
  std::string timeline;
  bool explain = false;
  bool text = false;
  bool shards = false;
  bool json = false;
};

struct PlanArguments {
  Config config;
  std::vector<std::string> given;  // names of the flags of train among the arguments
  std::vector<std::string> notes;  // Arguments::notes
  PlanFlags flags;
  bool help = false;
};

/// Parses the arguments of `shardlens plan`. Throws std::invalid_argument, also if flags contradict
/// each other.
PlanArguments parse_plan_arguments(const std::vector<std::string>& arguments);
std::string plan_help();

}  // namespace shardlens::planner
