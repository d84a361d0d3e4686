// A run of one rank without values: what runtime/launcher.cpp and runtime/trainer.cpp make a rank
// do, as far as its memory knows.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "models/spec.h"
#include "planner/allocator_settings.h"
#include "planner/gpus.h"
#include "planner/rank_simulation.h"
#include "planner/schedule.h"
#include "planner/simulated_state.h"
#include "planner/simulator.h"
#include "planner/strategy.h"
#include "planner/timeline.h"

namespace shardlens::planner {

/// Images that a rank keeps on its device as bytes, one channel.
struct ResidentImages {
  int64_t train_samples = 0;
  int64_t test_samples = 0;
  int64_t height = 0;
  int64_t width = 0;
};

struct SimulationOptions {
  int rank = 0;
  const Gpu* gpu = nullptr;  // none: the CPU
  AllocatorSettings allocator{};
  std::optional<ResidentImages> images{};  // none: one synthetic batch
  int64_t steps = 3;                       // from the third on every step is the same
  int64_t evaluation_batches = 3;          // the last one is the last of all, which may be smaller
};

/// The channels that have a communicator of NCCL's of their own, for a rank that has peers there.
/// `wanted`: what --communicators says.
std::vector<Channel> communicator_channels(const Schedule& schedule, int64_t wanted);

/// Borrows the spec and the schedules.
class Simulation final : public RankSimulation {
 public:
  Simulation(const models::ModelSpec& spec, const Config& config, const Schedule& train,
             const Schedule& evaluate, const SimulationOptions& options);
  ~Simulation() override;

  void run() override;

  const Timeline& timeline() const override { return timeline_; }
  SimulatedPeak peak() const override { return whole_; }
  SimulatedPeak step_peak() const override { return steps_; }
  int64_t pinned_peak_bytes() const override { return pinned_.peak_bytes(); }
  int64_t host_peak_bytes() const override { return host_.peak_bytes(); }
  int64_t allocation_retries() const override;

 private:
  void take_workspaces();
  void meet();
  void keep_images(std::string_view label, int64_t samples);
  void draw_weights();
  void make_batch();
  meta::Tensor split(int64_t samples);
  void order_samples();
  SimulatedBatch load_images(int64_t count);
  void train_epoch();
  void train_step(int64_t step, int64_t first);
  void evaluate();
  void count_answers(int64_t count);
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
  std::unique_ptr<DeviceMemory> gpu_memory_;
  HostMemory host_;
  HostMemory pinned_;
  meta::Context device_;
  meta::Context host_context_;
  RankMemory memory_;
  std::vector<std::shared_ptr<meta::Storage>> kept_;
  std::optional<SimulatedState> state_;
  std::optional<Simulator> simulator_;
  SimulatedBatch batch_;
  meta::Tensor order_;
  int64_t samples_ = 0;  // of an epoch, of this rank
  meta::Tensor logged_loss_;
  meta::Tensor epoch_loss_;
  int64_t logged_ = 0;
  int64_t step_ = 0;
  SimulatedPeak whole_;
  SimulatedPeak steps_;
};

}  // namespace shardlens::planner
