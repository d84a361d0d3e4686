// torch.optim.Adam, AdamW and clip_grad_norm_ on FSDP2's sharded parameters without values: the
// state that the first step makes, and the memory that each step takes in between.
#pragma once

#include <memory>
#include <vector>

#include "models/torch_rules.h"
#include "planner/pytorch/fsdp2.h"
#include "planner/simulate/meta/tensor.h"

namespace shardlens::planner {

/// The loop with which an optimizer visits the parameters: fused=True, foreach=True (PyTorch's
/// default on a GPU), or neither.
enum class PytorchLoop : uint8_t { fused, foreach, single };

class PytorchOptimizer {
 public:
  struct Options {
    PytorchLoop loop = PytorchLoop::foreach;
    int shards = 1;  // ranks that share the gradients
    const models::TorchRules* torch = &models::own_torch_rules();
  };

  /// Creates the optimizer; `memory` is where the shards lie. Borrows all arguments.
  PytorchOptimizer(const Options& options, std::vector<ShardedParameter>& parameters,
                   meta::Memory& memory, Timeline& timeline)
      : options_(options), parameters_(parameters), memory_(memory), timeline_(timeline) {}

  /// Does what torch.nn.utils.clip_grad_norm_ does.
  void clip();
  void step();

 private:
  using Block = std::shared_ptr<meta::Storage>;

  Block take(int64_t bytes) const;
  int64_t bytes_of(const ShardedParameter& parameter) const;
  void make_state();
  void step_single();
  void step_foreach();

  Options options_;
  std::vector<ShardedParameter>& parameters_;
  meta::Memory& memory_;
  Timeline& timeline_;
  std::vector<Block> state_;
};

}  // namespace shardlens::planner
