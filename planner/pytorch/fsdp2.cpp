#include "planner/pytorch/fsdp2.h"
#include "planner/simulate/timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/units.h"
#include "planner/simulate/meta/operators.h"

namespace shardlens::planner {

using meta::Tensor;
using meta::Tensors;
using meta::Type;
using profiler::Category;

namespace {

// The copies of both collectives are kernels over many tensors that read a table of int64 in device
// memory (native/cuda/TensorShape.cu); a block of threads copies one tile.
constexpr int64_t kTileBytes = 128 * 16;
constexpr int64_t kTableEntryBytes = 8;

}  // namespace

Fsdp2::Fsdp2(const std::vector<PytorchParameter>& parameters, const Fsdp2Options& options,
             CachingGpuMemory& memory, meta::Context& context, meta::Memory& pinned)
    : options_(options), memory_(memory), context_(context), pinned_(pinned) {
  for (const PytorchParameter& parameter : parameters) {
    weights_.push_back(Tensor::placed(context, parameter.shape, options.param_type));
    weights_.back().requires_grad_(true);
  }
  add_to_whole_gradients();
  make_shards(parameters);
  make_groups(parameters);
  set_prefetch();
}

Fsdp2::Block Fsdp2::take(int64_t numel, Type type) {
  if (numel == 0) return nullptr;
  return std::make_shared<meta::Storage>(memory_, numel * meta::bytes_of(type));
}

Fsdp2::Block Fsdp2::take_on_stream(StreamIndex stream, int64_t numel, Type type) {
  const StreamScope scope(memory_, stream);
  return take(numel, type);
}

// ---- setting up ---------------------------------------------------------------------------------

void Fsdp2::make_shards(const std::vector<PytorchParameter>& parameters) {
  for (const PytorchParameter& parameter : parameters) {
    ShardedParameter shard;
    shard.shape = parameter.shape;
    const int64_t rows = parameter.shape[0];
    const int64_t row = parameter.shape.product() / rows;
    const int64_t most = ceil_div(rows, options_.shards);
    shard.padded_numel = most * row;
    shard.numel = std::clamp<int64_t>(rows - options_.shard_rank * most, 0, most) * row;
    shards_.push_back(std::move(shard));
  }
  const TimelineScope scope(memory_.timeline(), Category::parameter_shard, "parameters");
  for (const int index : module_order(parameters)) make_again(index);
}

void Fsdp2::make_again(int parameter) {
  ShardedParameter& shard = shards_[static_cast<size_t>(parameter)];
  if (shard.numel == 0) return;
  const int64_t bytes = shard.numel * meta::bytes_of(Type::fp32);
  meta::Memory& memory = options_.cpu_offload ? pinned_ : static_cast<meta::Memory&>(memory_);
  shard.data = std::make_shared<meta::Storage>(memory, bytes);
}

/// Does what FSDPParam.reset_sharded_param does at the first forward: shards with fewer rows than
/// others are copied to padded ones.
void Fsdp2::pad_shards() {
  if (!std::exchange(is_first_forward_, false) || options_.cpu_offload) return;
  const TimelineScope scope(memory_.timeline(), Category::parameter_shard, "parameters");
  for (const Group& group : groups_) {
    for (const int parameter : group.parameters) {
      ShardedParameter& shard = shards_[static_cast<size_t>(parameter)];
      if (shard.numel != shard.padded_numel) shard.data = take(shard.padded_numel, Type::fp32);
    }
  }
}

void Fsdp2::make_groups(const std::vector<PytorchParameter>& parameters) {
  int blocks = 0;
  for (const PytorchParameter& parameter : parameters) {
    blocks = std::max(blocks, parameter.unit + 1);
  }
  const auto has = [&](int unit) {
    return options_.own_groups && std::any_of(parameters.begin(), parameters.end(),
                                              [&](const auto& p) { return p.unit == unit; });
  };
  const auto add = [&] {
    groups_.emplace_back().reshards = options_.reshard_after_forward;
    return static_cast<int>(groups_.size()) - 1;
  };
  const int root = add();
  if (has(kFirstUnit)) first_group_ = add();
  const bool is_tied = !has(kFirstUnit) && has(kLastUnit);  // found where the embedding is
  if (is_tied) last_group_ = add();
  for (int block = 0; block < blocks; ++block) units_.push_back(add());
  if (!is_tied && has(kLastUnit)) last_group_ = add();
  for (const int index : module_order(parameters)) {
    const int group = group_of(parameters[static_cast<size_t>(index)].unit);
    groups_[static_cast<size_t>(group < 0 ? root : group)].parameters.push_back(index);
  }
  for (Group& group : groups_) {
    group.whole.resize(group.parameters.size());
    group.kept.resize(group.parameters.size());
  }
  if (options_.own_groups) groups_[0].reshards = false;
  if (last_group_ >= 0) groups_[static_cast<size_t>(last_group_)].reshards = false;
  if (first_group_ >= 0) {
    const int table = groups_[static_cast<size_t>(first_group_)].parameters[0];
    groups_[static_cast<size_t>(first_group_)].unshards_in_backward =
        parameters[static_cast<size_t>(table)].name.find("embeddings") == std::string::npos;
  }
}

/// Returns the index of a unit's group; -1: it has no group of its own.
int Fsdp2::group_of(int unit) const {
  if (unit >= 0) return units_[static_cast<size_t>(unit)];
  if (unit == kRootUnit) return 0;
  return unit == kFirstUnit ? first_group_ : last_group_;
}

void Fsdp2::set_prefetch() {
  const auto blocks = static_cast<int>(units_.size());
  for (int block = 0; block < blocks; ++block) {
    Group& group = groups_[static_cast<size_t>(units_[static_cast<size_t>(block)])];
    for (int ahead = 1; ahead <= options_.forward_prefetch && block + ahead < blocks; ++ahead) {
      group.forward_prefetch.push_back(units_[static_cast<size_t>(block + ahead)]);
    }
    for (int ahead = 1; ahead <= options_.backward_prefetch && block - ahead >= 0; ++ahead) {
      group.backward_prefetch.push_back(units_[static_cast<size_t>(block - ahead)]);
    }
  }
}

// ---- gathering ----------------------------------------------------------------------------------

/// Allocates what the all-gather sends: one block of all shards in the compute dtype, or one for
/// each shard if they come from the host.
std::vector<Fsdp2::Block> Fsdp2::all_gather_inputs(const Group& group) {
  std::vector<Block> inputs;
  int64_t total = 0;
  for (size_t i = 0; i < group.parameters.size(); ++i) {
    const ShardedParameter& shard = shards_[static_cast<size_t>(group.parameters[i])];
    const bool is_kept = group.state == State::sharded_after_forward;
    const int64_t numel =
        is_kept ? gathered_numel(shard) / options_.regather_shards : shard.padded_numel;
    total += numel;
    if (!options_.cpu_offload) continue;
    if (is_kept) continue;
    inputs.push_back(input_copy(shard));
  }
  if (casts() && !options_.cpu_offload) inputs.push_back(take(total, options_.param_type));
  return inputs;
}

/// Allocates the copy of a shard on one rank; nullptr if the shard is used as it is.
Fsdp2::Block Fsdp2::input_copy(const ShardedParameter& shard) {
  const Block copy = options_.cpu_offload ? take(shard.padded_numel, Type::fp32) : nullptr;
  return casts() ? take(shard.padded_numel, options_.param_type) : copy;
}

void Fsdp2::unshard(Group& group) {
  if (group.parameters.empty() || group.is_pending || group.state == State::unsharded) return;
  if (!group.unshards_in_backward && group.phase == Phase::before_backward) return;
  group.is_pending = true;
  if (options_.shards == 1) return;
  const StreamScope stream(memory_, kCopyInStream);
  const TimelineScope scope(memory_.timeline(), Category::communication, "all-gather");
  std::vector<Block> inputs = all_gather_inputs(group);
  int64_t total = 0;
  for (const int index : group.parameters) {
    total += gathered_numel(shards_[static_cast<size_t>(index)]);
  }
  group.all_gather_output = take(total, options_.param_type);
  while (!inputs.empty()) inputs.pop_back();
}

/// Models split_with_sizes_copy. Its table says for each parameter where it comes from, where it
/// goes and how much it is, and for each block of threads which parameter it copies.
void Fsdp2::copy_out(const Group& group, int ranks) {
  const Gpu& gpu = *context_.gpu;
  const int64_t bytes = meta::bytes_of(options_.param_type);
  std::vector<int64_t> chunks;
  int64_t blocks = 0;
  for (const int index : group.parameters) {
    chunks.push_back(gathered_numel(shards_[static_cast<size_t>(index)]) / ranks * bytes);
    blocks += ceil_div(chunks.back(), kTileBytes);
  }
  constexpr int64_t kThreads = 128, kWaves = 2;
  const int64_t most = gpu.sm_count * gpu.capability.max_threads_per_sm / kThreads * kWaves;
  const int64_t work = ceil_div(blocks * ranks, most);
  const auto chunks_a_block = std::min(
      static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(work)))), int64_t{ranks});
  const int64_t tiles = ceil_div(work, chunks_a_block);
  int64_t entries = 4 * static_cast<int64_t>(chunks.size()) + 1;
  for (const int64_t chunk : chunks) entries += ceil_div(chunk, kTileBytes * tiles);
  const meta::OperatorCall call(context_);
  Tensor::empty(context_, {entries * kTableEntryBytes}, Type::uint8);
}

void Fsdp2::wait_for_unshard(Group& group) {
  if (!group.is_pending) return;
  const bool is_forward = group.phase == Phase::forward;
  // A Python name may keep the output of the group before until this function's end.
  Block before;
  if (is_forward) before = std::exchange(forward_output_, nullptr);
  if (context_.torch->fsdp2_releases_at_once) before = nullptr;
  const TimelineScope scope(memory_.timeline(), Category::unsharded_parameter, "parameters");
  Block input;  // on one rank; a name in Python keeps it until the next one exists
  for (size_t i = 0; i < group.parameters.size(); ++i) {
    const ShardedParameter& shard = shards_[static_cast<size_t>(group.parameters[i])];
    if (options_.shards == 1) input = input_copy(shard);
    group.whole[i] = take(gathered_numel(shard), options_.param_type);
  }
  if (options_.shards > 1) {
    const bool is_kept = group.state == State::sharded_after_forward;
    copy_out(group, is_kept ? options_.regather_shards : options_.shards);
  }
  if (group.state == State::sharded_after_forward) {
    for (Block& kept : group.kept) kept = nullptr;
  }
  group.state = State::unsharded;
  group.is_pending = false;
  if (is_forward && options_.shards > 1) forward_output_ = group.all_gather_output;
  group.all_gather_output = nullptr;
}

/// Keeps a rank's part of the group. A part that backward has not used stays until the next one is
/// allocated.
void Fsdp2::to_sharded_after_forward(Group& group) {
  const TimelineScope scope(memory_.timeline(), Category::parameter_shard, "kept after forward");
  for (size_t i = 0; i < group.parameters.size(); ++i) {
    const ShardedParameter& shard = shards_[static_cast<size_t>(group.parameters[i])];
    const int64_t numel = gathered_numel(shard) / options_.regather_shards;
    Block kept = take(numel, options_.param_type);
    group.kept[i] = std::move(kept);
    group.whole[i] = nullptr;
  }
  group.state = State::sharded_after_forward;
}

void Fsdp2::reshard(Group& group) {
  if (group.phase == Phase::forward) {
    if (!group.reshards) return;
    if (options_.regather_shards > 0) return to_sharded_after_forward(group);
  }
  if (group.state == State::sharded) return;
  for (Block& whole : group.whole) whole = nullptr;
  group.state = State::sharded;
}

void Fsdp2::prefetch(int index, Phase phase) {
  Group& group = groups_[static_cast<size_t>(index)];
  const Phase before = std::exchange(group.phase, phase);
  unshard(group);
  group.phase = before;
}

// ---- forward ------------------------------------------------------------------------------------

Tensor Fsdp2::cast_input(const Tensor& input) {
  const bool is_cast = casts() && meta::is_floating(input.scalar_type());
  return is_cast ? input.to(options_.param_type) : input;
}

/// Attributes memory to a unit from here on: to a block, or to the whole model.
void Fsdp2::work_on(int unit) {
  Timeline& timeline = memory_.timeline();
  Purpose purpose = timeline.purpose();
  purpose.label = timeline.label(unit < 0 ? std::string("model") : fmt::format("block{}", unit));
  timeline.change(purpose);
}

Tensor Fsdp2::enter(int unit, const Tensor& given) {
  work_on(unit);
  const int index = group_of(unit);
  if (index < 0) return given;
  if (index == 0) pad_shards();
  Group& group = groups_[static_cast<size_t>(index)];
  const Tensor input = cast_input(given);
  group.phase = Phase::forward;
  unshard(group);
  wait_for_unshard(group);
  Tensor entered = input;
  if (!group.parameters.empty() && meta::needs_node({&input})) {
    entered = input.detach();
    entered.set_edge({meta::add_node({&input}, {},
                                     [this, index](meta::Node&, Tensors&& gradients) {
                                       work_on(kRootUnit);
                                       after_backward(groups_[static_cast<size_t>(index)]);
                                       return std::move(gradients);
                                     }),
                      0});
  }
  for (const int target : group.forward_prefetch) prefetch(target, Phase::forward);
  return entered;
}

Tensor Fsdp2::leave(int unit, const Tensor& output) {
  const int index = group_of(unit);
  if (index < 0) return output;
  Group& group = groups_[static_cast<size_t>(index)];
  reshard(group);
  if (!group.parameters.empty()) {
    group.forward_positions.push_back(forward_order_.size());
    forward_order_.push_back(index);
  }
  group.phase = Phase::idle;
  Tensor left = output;
  if (meta::needs_node({&output})) {
    left = output.detach();
    left.set_edge({meta::add_node({&output}, {},
                                  [this, index, unit](meta::Node&, Tensors&& gradients) {
                                    work_on(unit);
                                    before_backward(groups_[static_cast<size_t>(index)]);
                                    return std::move(gradients);
                                  }),
                   0});
  }
  if (index == 0) forward_output_ = nullptr;
  work_on(kRootUnit);
  return left;
}

// ---- backward -----------------------------------------------------------------------------------

void Fsdp2::before_backward(Group& group) {
  set_gradient_types(group);
  if (group.phase != Phase::before_backward) {
    group.phase = Phase::before_backward;
    unshard(group);
    wait_for_unshard(group);
    if (group.backward_prefetch.empty()) prefetch_backward(group);
  }
  for (const int target : group.backward_prefetch) prefetch(target, Phase::before_backward);
}

/// Prefetches the group whose forward ended before this one's.
void Fsdp2::prefetch_backward(Group& group) {
  if (group.forward_positions.empty()) return;
  const size_t position = group.forward_positions.back();
  group.forward_positions.pop_back();
  if (position > 0) prefetch(forward_order_[position - 1], Phase::before_backward);
}

void Fsdp2::after_backward(Group& group) {
  group.phase = Phase::after_backward;
  for (const int index : group.parameters) {
    const bool is_added = whole_gradients_[static_cast<size_t>(index)].defined();
    if (is_added) weights_[static_cast<size_t>(index)].leaf()->gradient = {};
  }
  if (!reduces_) return accumulate(group);
  std::vector<int> parameters;
  Tensors gradients;
  for (const int index : group.parameters) {
    meta::Leaf& leaf = *weights_[static_cast<size_t>(index)].leaf();
    Tensor& whole = whole_gradients_[static_cast<size_t>(index)];
    if (whole.defined()) leaf.gradient = std::exchange(whole, {});
    if (!leaf.gradient.defined()) continue;
    parameters.push_back(index);
    gradients.push_back(std::exchange(leaf.gradient, {}));
  }
  reshard(group);
  if (!parameters.empty()) reduce(group, parameters, std::move(gradients));
}

/// Models how autograd adds to a gradient of an earlier backward: at once if the dtypes agree, and
/// in some versions also if they differ. Otherwise the whole gradients are added up after a group's
/// backward.
void Fsdp2::add_to_whole_gradients() {
  whole_gradients_.resize(weights_.size());
  const bool is_cast = options_.reduce_type != options_.param_type;
  if (is_cast && !context_.torch->fsdp2_adds_in_place) return;
  for (size_t i = 0; i < weights_.size(); ++i) {
    meta::Leaf* const leaf = weights_[i].leaf().get();
    leaf->on_gradient = [this, leaf, i] {
      if (whole_gradients_[i].defined()) leaf->gradient = std::exchange(whole_gradients_[i], {});
    };
  }
}

/// Sets the dtypes to which arriving gradients are cast. A gradient is cast at once if this
/// backward does not reduce it and there is no earlier one to add it to.
void Fsdp2::set_gradient_types(const Group& group) {
  if (!context_.torch->fsdp2_adds_in_place) return;
  for (const int index : group.parameters) {
    const bool is_first = !whole_gradients_[static_cast<size_t>(index)].defined();
    weights_[static_cast<size_t>(index)].leaf()->gradient_type =
        is_first && !reduces_ ? std::optional(options_.reduce_type) : std::nullopt;
  }
}

/// Ends a backward without reduction: gradients stay whole, in the dtype of the reduction.
void Fsdp2::accumulate(Group& group) {
  reshard(group);
  for (const int index : group.parameters) {
    Tensor& gradient = weights_[static_cast<size_t>(index)].leaf()->gradient;
    if (!gradient.defined()) continue;
    Tensor& whole = whole_gradients_[static_cast<size_t>(index)];
    if (!whole.defined()) whole = gradient.to(options_.reduce_type);
    gradient = {};
  }
}

/// Models _chunk_cat for pairs of dtypes for which it has no kernel: gradients whose rows do not
/// divide evenly are copied to padded ones first.
void Fsdp2::pad_gradients(const std::vector<int>& parameters) {
  std::vector<Block> padded;
  for (const int index : parameters) {
    const ShardedParameter& shard = shards_[static_cast<size_t>(index)];
    if (shard.shape[0] % options_.shards == 0) continue;
    padded.push_back(take(gathered_numel(shard), options_.param_type));
  }
}

/// Models _chunk_cat. Its table says for each gradient where it is, where it goes and how much it
/// is, and for each block of threads which gradient it copies.
void Fsdp2::copy_in(const std::vector<int>& parameters) {
  const meta::OperatorCall call(context_);
  const bool has_kernel = options_.param_type == options_.reduce_type ||
                          (options_.param_type == Type::bf16 && options_.reduce_type == Type::fp32);
  if (!has_kernel) return pad_gradients(parameters);
  const int64_t bytes = meta::bytes_of(options_.reduce_type);
  int64_t entries = 6 * static_cast<int64_t>(parameters.size()) + 2;
  for (const int index : parameters) {
    const int64_t chunk = shards_[static_cast<size_t>(index)].padded_numel * bytes;
    entries += ceil_div(chunk, kTileBytes);
  }
  Tensor::empty(context_, {entries * kTableEntryBytes}, Type::uint8);
}

/// Models foreach_reduce. With more than one rank Python names may keep the last gradient, and the
/// input of the reduction before, until the end.
void Fsdp2::reduce(Group& group, const std::vector<int>& parameters, Tensors gradients) {
  const TimelineScope scope(memory_.timeline(), Category::reduce_buffer, "reduce-scatter");
  Block before = std::exchange(reduce_input_, nullptr);
  if (!context_.torch->fsdp2_keeps_reduce_input) before = nullptr;
  group.all_reduce_input = nullptr;
  Tensor last;
  if (options_.shards > 1 && context_.torch->fsdp2_keeps_last_gradient) last = gradients.back();
  int64_t total = 0;
  for (const int index : parameters) total += shards_[static_cast<size_t>(index)].padded_numel;
  reduce_input_ = take(total * options_.shards, options_.reduce_type);
  copy_in(parameters);
  while (!gradients.empty()) gradients.pop_back();
  const TimelineScope shards(memory_.timeline(), Category::gradient_shard, "gradients");
  Block output = take_on_stream(kReduceStream, total, options_.reduce_type);
  if (options_.replicas > 1) group.all_reduce_input = output;
  if (options_.reduce_type != Type::fp32) {
    const bool is_replicated = options_.replicas > 1;
    output = take_on_stream(is_replicated ? kAllReduceStream : kReduceStream, total, Type::fp32);
  }
  set_gradients(parameters, output);
  last = {};
}

/// Sets the shards' gradients from the reduced ones. Under CPU offload each goes to the host, and
/// the flat block is released.
void Fsdp2::set_gradients(const std::vector<int>& parameters, const Block& flat) {
  for (const int index : parameters) {
    ShardedParameter& shard = shards_[static_cast<size_t>(index)];
    if (!shard.has_gradient) {
      if (options_.cpu_offload && shard.numel > 0) {
        shard.gradient =
            std::make_shared<meta::Storage>(pinned_, shard.numel * meta::bytes_of(Type::fp32));
      } else if (!options_.cpu_offload) {
        shard.gradient = flat;
      }
    }
    shard.has_gradient = true;
  }
}

void Fsdp2::finish_backward() {
  for (Group& group : groups_) {
    if (group.phase != Phase::after_backward) after_backward(group);
    group.phase = Phase::idle;
    group.all_reduce_input = nullptr;
    group.is_pending = false;
    group.all_gather_output = nullptr;
    group.forward_positions.clear();
  }
  forward_order_.clear();
  reduce_input_ = nullptr;
}

}  // namespace shardlens::planner
