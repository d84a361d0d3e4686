// Simulates a run of one rank without values: everything that runtime/launch/launcher.cpp and
// runtime/train/trainer.cpp make a rank do, as far as it changes the rank's memory.
//
// [Note: what stands for a run]
// Few of a run's steps differ in memory: the first ones; the one after the first evaluation, which
// finds the memory that the evaluation left behind; and the one after the first checkpoint, since
// all later steps run beside its copy. These are simulated, with the evaluations and checkpoints
// among them, and the run's end. A step may have many microbatches: those that begin as an earlier
// one did and take the same number of samples are left out (settled_rounds.h).
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "base/gpus.h"
#include "models/spec.h"
#include "planner/config/checkpointing.h"
#include "planner/config/config.h"
#include "planner/config/strategy.h"
#include "planner/config/training_data.h"
#include "planner/schedule/schedule.h"
#include "planner/simulate/allocator/settings.h"
#include "planner/simulate/settled_rounds.h"
#include "planner/simulate/simulated_state.h"
#include "planner/simulate/simulator.h"
#include "planner/simulate/timeline.h"
#include "planner/step/samples.h"

namespace shardlens::planner {

struct SimulationOptions {
  int rank = 0;
  const Gpu* gpu = nullptr;  // null: the CPU
  const models::TorchRules* torch = &models::own_torch_rules();
  AllocatorSettings allocator{};
  TrainingData data{};
  Checkpointing checkpointing{};
  int64_t evaluation_batches = 3;  // the last one is the last of all, which may be smaller
  bool every_microbatch = false;   // none is left out
};

/// Returns the channels that have an NCCL communicator of their own, for a rank that has peers
/// there. `wanted` is the value of --communicators.
std::vector<Channel> communicator_channels(const Schedule& schedule, int64_t wanted);

/// Returns the kernels among which LibTorch may choose under --attention.
meta::AttentionKernels attention_kernels(const Config& config);

/// The most memory that a rank holds; `reserved_bytes` includes what its allocator keeps cached. On
/// the CPU, where nothing is cached, both are the bytes that were asked for.
struct SimulatedPeak {
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;

  bool operator==(const SimulatedPeak&) const = default;
};

/// Simulates one rank. Borrows the spec and the schedules.
class Simulation {
 public:
  Simulation(const models::ModelSpec& spec, const Config& config, const Schedule& train,
             const Schedule& evaluate, const SimulationOptions& options);
  ~Simulation();

  /// Simulates the run. Throws DeviceFull if the device has too little memory; the timeline then
  /// ends there.
  void run();

  const Timeline& timeline() const { return timeline_; }
  SimulatedPeak peak() const { return whole_; }
  /// Returns the peak of only the steps, from the third one on.
  SimulatedPeak step_peak() const { return steps_; }
  int64_t pinned_peak_bytes() const { return pinned_.peak_bytes(); }
  int64_t host_peak_bytes() const { return host_.peak_bytes(); }
  /// Counts stalls: how often the cache was given back to make room.
  int64_t allocation_retries() const;

 private:
  void take_workspaces();
  void meet();
  MetaStepOps::Batch keep_images(std::string_view label, int64_t samples);
  void draw_weights();
  void make_batch();
  void order_samples();
  meta::Tensor own_part(const meta::Tensor& order) const;
  MetaStepOps::Batch load(const MetaStepOps::Batch& images, const meta::Tensor& indices);
  MetaStepOps::Batch read_images(int64_t count);
  meta::Context& index_device();
  void train();
  std::vector<int64_t> typical_steps() const;
  bool ends_epoch() const { return step_ % steps_per_epoch_ == 0; }
  bool is_logged() const { return step_ % config_.log_every == 0 || step_ == last_step_; }
  void arrive(int64_t step);
  void stand_for_later();
  void begin_epoch();
  void train_step();
  int64_t leave_out(int64_t first, int64_t rounds_left);
  MemoryState memory_state() const;
  void skip_to(int64_t step);
  void end_epoch();
  void read_loss(RunningLoss<meta::Tensor>& sum);
  void read_scalar(meta::Type type);
  void read_generator();
  void save(bool is_due);
  void evaluate();
  int64_t counted_retries() const;
  SimulatedPeak current_peak() const;
  void reset_peak();
  void raise(SimulatedPeak& peak) const;

  const models::ModelSpec& spec_;
  Config config_;
  Strategy strategy_;
  const Schedule& train_;
  const Schedule& evaluate_;
  SimulationOptions options_;
  Timeline timeline_;
  std::unique_ptr<CachingGpuMemory> gpu_memory_;
  HostMemory host_;
  HostMemory pinned_;
  meta::Context device_;
  meta::Context host_context_;
  RankMemory memory_;
  std::vector<std::shared_ptr<meta::Storage>> kept_;
  std::optional<SimulatedState> state_;
  std::optional<Simulator> simulator_;
  MetaStepOps::Batch batch_;
  MetaStepOps::Batch train_images_;  // all of them, as bytes
  MetaStepOps::Batch test_images_;
  meta::Tensor order_;
  int64_t samples_ = 0;  // of an epoch, of this rank
  int64_t steps_per_epoch_ = 0;
  int64_t last_step_ = 0;
  RunningLoss<meta::Tensor> logged_loss_;
  RunningLoss<meta::Tensor> epoch_loss_;
  int64_t step_ = 0;  // steps done
  SettledRounds rounds_;
  bool is_staged_ = false;
  std::set<meta::Type> read_types_;
  SimulatedPeak whole_;
  SimulatedPeak steps_;
};

}  // namespace shardlens::planner
