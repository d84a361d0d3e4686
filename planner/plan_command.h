// `shardlens plan` without a process around it: it takes arguments and returns the text to
// print and the exit code.
#pragma once

#include <string>
#include <vector>

namespace shardlens::planner {

struct PlanOutcome {
  int exit_code = 0;  // 0 fits, 4 with retries, 3 does not
  std::string out{};
  std::string notes{};  // how another program's files were read
};

/// Makes the plan that `arguments` ask for: all flags of train, and plan's own, without the
/// program's name. `allocator_settings` is the value of PYTORCH_CUDA_ALLOC_CONF. Throws
/// std::invalid_argument for wrong usage and std::runtime_error if a file cannot be written.
PlanOutcome plan_command(const std::vector<std::string>& arguments,
                         const std::string& allocator_settings);

}  // namespace shardlens::planner
