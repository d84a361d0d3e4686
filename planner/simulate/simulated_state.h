// The memory that a rank keeps from step to step, without values: the counterpart of
// runtime/execute/rank_state.h, which allocates the same in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "models/spec.h"
#include "planner/schedule/pinned_blocks.h"
#include "planner/schedule/schedule.h"
#include "planner/simulate/meta/autograd.h"
#include "planner/simulate/timeline.h"
#include "planner/step/step.h"

namespace shardlens::planner {

/// The memories in which a rank's tensors lie. On the CPU all three are the host's memory.
struct RankMemory {
  Timeline& timeline;
  meta::Context& device;
  meta::Memory& host;
  meta::Memory& pinned;

  bool has_device() const { return device.is_cuda(); }
};

class SimulatedState {
 public:
  /// Allocates the state. `moments`: names of what the optimizer keeps beside each weight.
  SimulatedState(const models::ModelSpec& spec, const Schedule& schedule,
                 std::vector<const char*> moments, const RankMemory& memory);

  const meta::Tensor& weight(int parameter) const {
    return weights_[static_cast<size_t>(parameter)];
  }
  /// Returns the parameter whose leaf this is; -1 if it belongs to no parameter.
  int parameter_of(const meta::Leaf& leaf) const;
  // These have no memory of their own, but that of a slot, or of a bucket's shard in a slot.
  meta::Tensor slot(int index) const;
  meta::Tensor shard_in(int group, int bucket, int slot) const;
  meta::Tensor step_count() const;
  void zero_padding(int, int, int) {}
  void begin_slot(int slot);
  void end_slot(int slot);
  /// Takes memory for the copies that a rank makes for a checkpoint, and keeps it.
  void take_staging(int rank);

 private:
  void allocate_buckets();
  void allocate_host_copies(const Bucket& bucket, const std::string& name);
  void take_pinned(PinnedBlocks& blocks, profiler::Category category, const char* label,
                   int64_t bytes);
  void allocate_slots();
  void make_weights(const models::ModelSpec& spec);
  void keep(profiler::Category category, const std::string& label, meta::Memory& memory,
            int64_t bytes);

  const Schedule& schedule_;
  std::vector<const char*> moments_;
  RankMemory memory_;
  PinnedBlocks masters_;
  PinnedBlocks casts_;
  std::vector<std::shared_ptr<meta::Storage>> kept_;
  std::vector<std::shared_ptr<meta::Storage>> slots_;
  std::vector<ParameterPlace> places_;
  std::vector<meta::Tensor> weights_;
  std::unordered_map<const meta::Leaf*, int> parameters_;
};

}  // namespace shardlens::planner
