// What the null device checks of a rank's passes (SHARDLENS_NULL_CHECK=1): that every use of a slot
// or of the rank's state is ordered by a wait, and that NCCL was called as the schedule says.
//
// The stubs see the memory of copies, collectives and allocations. What kernels read and write is
// declared here, action by action, as the schedule has it.
#pragma once

#include <string>
#include <vector>

#include "planner/schedule.h"
#include "runtime/null_device/null_checks.h"
#include "runtime/rank_state.h"
#include "runtime/streams.h"

namespace shardlens::runtime {

class NullInspection {
 public:
  /// `checks` as find_null_checks() gives them; `by_nccl`: collectives are NCCL's. All must outlive
  /// it. Follows LibTorch's caching allocator from now on.
  NullInspection(NullChecks& checks, RankState& state, const Streams& streams, bool by_nccl);

  /// The action is about to be enqueued, its waits have been.
  void enter(const planner::Schedule& schedule, int64_t step, int action);
  /// Compares NCCL's calls since the last pass with those that the schedule has.
  void end_pass(const planner::Schedule& schedule);

  /// One line each; none twice.
  std::vector<std::string> take_faults();

 private:
  void use(const planner::Action& action, const at::Tensor& tensor, bool writes);
  void use_slot(const planner::Schedule& schedule, const planner::Action& action, int slot,
                bool writes);
  void use_state(const planner::Schedule& schedule, const planner::Action& action);

  NullChecks& checks_;
  RankState& state_;
  const Streams& streams_;
  bool by_nccl_;
  std::string what_;  // the action that is entered, for findings
  std::vector<std::string> faults_;
};

}  // namespace shardlens::runtime
