// Simulates a run of one rank of a Python program without values: PyTorch's FSDP2, its optimizer
// and its loop, as far as they change the rank's memory. planner/simulate/simulation.h simulates
// our own program.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/spec.h"
#include "planner/config/config.h"
#include "planner/pytorch/fsdp2.h"
#include "planner/pytorch/models.h"
#include "planner/pytorch/optimizer.h"
#include "planner/pytorch/scaler.h"
#include "planner/simulate/rank_simulation.h"
#include "planner/simulate/settled_rounds.h"
#include "planner/simulate/timeline.h"

namespace shardlens::planner {

/// The moment when the program releases its gradients: zero_grad() after or before the step's
/// forward, or never: zero_grad(set_to_none=False).
enum class PytorchZeroGrad : uint8_t { after, before, keep };

/// Choices of a Python program that Config has no option for, since our program has only one way.
struct PytorchOptions {
  int rank = 0;
  const Gpu* gpu = nullptr;
  const models::TorchRules* torch = &models::own_torch_rules();
  AllocatorSettings allocator{};
  int64_t steps = 5;        // the first two make state; later ones may place blocks differently
  bool own_groups = false;  // embedding and head are groups, else they are the root's
  PytorchLoop loop = PytorchLoop::foreach;
  PytorchZeroGrad zero_grad = PytorchZeroGrad::after;
  PytorchVariant writing{};
  int forward_prefetch = 0;  // explicit, blocks ahead; 0: FSDP2's own
  int backward_prefetch = 0;
  bool every_microbatch = false;  // none is left out
};

/// Simulates one rank. Borrows the spec. SGD, DDP, recomputation, frozen parameters, cuDNN and
/// wrapping other than by block are not modelled.
class PytorchSimulation final : public RankSimulation {
 public:
  /// Throws std::invalid_argument for options that are not modelled: what, why, how to fix it.
  PytorchSimulation(const models::ModelSpec& spec, const Config& config,
                    const PytorchOptions& options);

  void run() override;

  const Timeline& timeline() const override { return timeline_; }
  SimulatedPeak peak() const override { return whole_; }
  SimulatedPeak step_peak() const override { return steps_; }
  int64_t pinned_peak_bytes() const override { return pinned_.peak_bytes(); }
  int64_t host_peak_bytes() const override { return host_.peak_bytes(); }
  int64_t allocation_retries() const override {
    return counted_retries() + rounds_.retries_left_out();
  }

 private:
  void start();
  void warm_up_fake_tensors();
  void make_batch();
  meta::Tensor scaled_loss();
  void run_microbatch();
  void step(int64_t number);
  void update_parameters();
  void zero_grad();
  MemoryState memory_state() const;
  int64_t counted_retries() const { return memory_.allocator().counters().alloc_retries; }
  void raise(SimulatedPeak& peak) const;

  const models::ModelSpec& spec_;
  Config config_;
  PytorchOptions options_;
  Timeline timeline_;
  CachingGpuMemory memory_;
  HostMemory pinned_;
  HostMemory host_;
  meta::Context context_;
  PytorchOps ops_;
  std::unique_ptr<Fsdp2> fsdp_;
  std::unique_ptr<PytorchModel> model_;
  std::unique_ptr<PytorchOptimizer> optimizer_;
  std::unique_ptr<PytorchScaler> scaler_;  // where the loss is scaled
  std::vector<std::shared_ptr<meta::Storage>> buffers_;
  meta::Tensor input_;
  meta::Tensor targets_;
  meta::Tensor logits_;  // where the loop has a name for them
  meta::Tensor loss_;
  SettledRounds rounds_;
  SimulatedPeak whole_;
  SimulatedPeak steps_;
};

}  // namespace shardlens::planner
