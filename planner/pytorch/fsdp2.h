// PyTorch's FSDP2 without values: the memory that torch.distributed.fsdp.fully_shard allocates and
// frees on which stream, in the order in which its hooks run, by the rules of the context's
// version. Names are those of torch/distributed/fsdp/_fully_shard: _fsdp_param_group.py,
// _fsdp_collectives.py, _fsdp_param.py.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "planner/pytorch/models.h"
#include "planner/simulate/meta/autograd.h"
#include "planner/simulate/meta/tensor.h"
#include "planner/simulate/timeline.h"

namespace shardlens::planner {

/// The streams on which FSDP2 asks for blocks.
enum PytorchStream : StreamIndex { kComputeStream, kCopyInStream, kReduceStream, kAllReduceStream };
constexpr size_t kPytorchStreams = 4;

struct Fsdp2Options {
  int shards = 1;
  int shard_rank = 0;
  int replicas = 1;
  int regather_shards = 0;  // reshard_after_forward=K; 0: unset
  bool reshard_after_forward = true;
  bool own_groups = false;  // embedding and head are groups of their own, as are the blocks
  bool cpu_offload = false;
  meta::Type param_type = meta::Type::fp32;
  meta::Type reduce_type = meta::Type::fp32;
  int forward_prefetch = 0;  // set_modules_to_forward_prefetch: blocks ahead; 0: implicit
  int backward_prefetch = 0;
};

/// The part of a parameter that a rank keeps, and its gradient after backward.
struct ShardedParameter {
  meta::Sizes shape;
  int64_t padded_numel = 0;
  int64_t numel = 0;
  std::shared_ptr<meta::Storage> data;
  std::shared_ptr<meta::Storage> gradient;  // shared by the whole group; none under CPU offload
  bool has_gradient = false;
};

class Fsdp2 final : public ModuleHooks {
 public:
  /// Makes the shards, as model.to_empty() does; under CPU offload in `pinned`. Borrows everything
  /// but the parameters.
  Fsdp2(const std::vector<PytorchParameter>& parameters, const Fsdp2Options& options,
        CachingGpuMemory& memory, meta::Context& context, meta::Memory& pinned);

  const std::vector<meta::Tensor>& weights() const { return weights_; }
  /// Returns the shards by parameter, in the order of model.parameters().
  std::vector<ShardedParameter>& shards() { return shards_; }
  /// Makes a second shard of a parameter that two modules share, for the second module.
  void make_again(int parameter);

  meta::Tensor enter(int unit, const meta::Tensor& input) override;
  meta::Tensor leave(int unit, const meta::Tensor& output) override;
  /// Does what FSDPModule.set_requires_gradient_sync() does: if `reduces`, the next backward
  /// reduces its gradients; else it leaves them whole on every rank to be added to.
  void set_requires_gradient_sync(bool reduces) { reduces_ = reduces; }
  /// Runs the callback that FSDP2 has at the end of backward.
  void finish_backward();

 private:
  using Block = std::shared_ptr<meta::Storage>;
  enum class State : uint8_t { sharded, sharded_after_forward, unsharded };
  enum class Phase : uint8_t { idle, forward, before_backward, after_backward };

  struct Group {
    std::vector<int> parameters;
    State state = State::sharded;
    Phase phase = Phase::idle;
    bool reshards = true;
    bool unshards_in_backward = true;
    bool is_pending = false;   // its all-gather was issued
    Block all_gather_output;   // none on one rank
    std::vector<Block> whole;  // by its parameters
    std::vector<Block> kept;   // shards over fewer ranks after forward
    Block all_reduce_input;
    std::vector<size_t> forward_positions;
    std::vector<int> forward_prefetch;  // groups
    std::vector<int> backward_prefetch;
  };

  void add_to_whole_gradients();
  void set_gradient_types(const Group& group);
  void make_groups(const std::vector<PytorchParameter>& parameters);
  void make_shards(const std::vector<PytorchParameter>& parameters);
  void set_prefetch();
  int group_of(int unit) const;
  void work_on(int unit);
  meta::Tensor cast_input(const meta::Tensor& input);
  void pad_shards();

  void unshard(Group& group);
  std::vector<Block> all_gather_inputs(const Group& group);
  Block input_copy(const ShardedParameter& shard);
  void wait_for_unshard(Group& group);
  void copy_out(const Group& group, int ranks);
  void reshard(Group& group);
  void to_sharded_after_forward(Group& group);
  void prefetch(int group, Phase phase);
  void before_backward(Group& group);
  void prefetch_backward(Group& group);
  void after_backward(Group& group);
  void accumulate(Group& group);
  void reduce(Group& group, const std::vector<int>& parameters, meta::Tensors gradients);
  void pad_gradients(const std::vector<int>& parameters);
  void copy_in(const std::vector<int>& parameters);
  void set_gradients(const std::vector<int>& parameters, const Block& flat);

  Block take(int64_t numel, meta::Type type);
  Block take_on_stream(StreamIndex stream, int64_t numel, meta::Type type);
  bool casts() const { return options_.param_type != meta::Type::fp32; }
  int64_t gathered_numel(const ShardedParameter& shard) const {
    return shard.padded_numel * options_.shards;
  }

  Fsdp2Options options_;
  CachingGpuMemory& memory_;
  meta::Context& context_;
  meta::Memory& pinned_;
  std::vector<ShardedParameter> shards_;
  std::vector<meta::Tensor> weights_;
  std::vector<Group> groups_;  // the root first, as modules are found
  std::vector<int> units_;     // a group by block
  int first_group_ = -1;
  int last_group_ = -1;
  bool is_first_forward_ = true;
  bool reduces_ = true;
  meta::Tensors whole_gradients_;  // by parameter, of backwards that did not reduce
  std::vector<int> forward_order_;
  Block forward_output_;  // all-gather output kept until the next group's
  Block reduce_input_;
};

}  // namespace shardlens::planner
