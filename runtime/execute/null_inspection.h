// Checks a rank's passes on a null device (SHARDLENS_NULL_CHECK=1): that every use of a slot or of
// the rank's state is ordered by a wait, and that NCCL was called as the schedule says.
//
// The stubs see the memory of copies, collectives and allocations. What kernels use is declared
// here, action by action, as the schedule says.
#pragma once

#include <string>
#include <vector>

#include "planner/schedule/schedule.h"
#include "profiler/null_device/checks/null_checks.h"
#include "runtime/execute/rank_state.h"
#include "runtime/execute/streams.h"

namespace shardlens::runtime {

class NullInspection {
 public:
  /// Begins to follow LibTorch's caching allocator. `checks` comes from find_null_checks();
  /// `by_nccl` is true if collectives are NCCL's. All must outlive the inspection.
  NullInspection(profiler::NullChecks& checks, RankState& state, const Streams& streams,
                 bool by_nccl);

  /// Call this when the action is about to be enqueued, after its waits.
  void enter(const planner::Schedule& schedule, int64_t step, int action);
  /// Compares NCCL's calls since the last pass with the schedule's.
  void end_pass(const planner::Schedule& schedule);

  /// Returns the faults, one line each, without repeats.
  std::vector<std::string> take_faults();

 private:
  void use(const planner::Action& action, const at::Tensor& tensor, bool writes);
  void use_slot(const planner::Schedule& schedule, const planner::Action& action, int slot,
                bool writes);
  void use_state(const planner::Schedule& schedule, const planner::Action& action);

  profiler::NullChecks& checks_;
  RankState& state_;
  const Streams& streams_;
  bool by_nccl_;
  std::string what_;  // the action that is entered, for findings
  std::vector<std::string> faults_;
};

}  // namespace shardlens::runtime
