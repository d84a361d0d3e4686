// Defines the actions that move parameters and gradients between ranks, and apply the gradients.
#include <ATen/ATen.h>

#include <utility>

#include "base/check.h"
#include "runtime/execute/executor.h"

namespace shardlens::runtime {

using planner::Action;
using planner::ActionKind;
using planner::Bucket;

namespace {

/// Starts a copy and lets the host continue. Without a device it copies at once.
void start_copy(const at::Tensor& to, const at::Tensor& from) {
  to.copy_(from, /*non_blocking=*/true);
}

at::Tensor pinned_like(const at::Tensor& scalar) {
  const bool has_device = scalar.is_cuda();
  return at::empty({}, scalar.options().device(at::kCPU).pinned_memory(has_device));
}

}  // namespace

void Executor::move(const Action& action) {
  switch (action.kind) {
    case ActionKind::h2d:
      return h2d(action);
    case ActionKind::d2h:
      return d2h(action);
    case ActionKind::cast_shard:
      return cast_shard(action);
    case ActionKind::all_gather:
      return all_gather(action);
    case ActionKind::reshard:
      return reshard(action);
    case ActionKind::reduce_scatter:
      return reduce_scatter(action);
    case ActionKind::all_reduce:
      return all_reduce(action);
    case ActionKind::accumulate:
      return accumulate(action);
    default:
      unreachable("an action that moves nothing");
  }
}

void Executor::h2d(const Action& action) {
  const at::NoGradGuard no_grad;
  if (action.group < 0) {
    return start_copy(state_.slot(action.writes.front()), state_.slot(action.reads.front()));
  }
  if (action.bucket < 0) {
    const int kept_slot = -1;
    for (const auto& [to, from] :
         state_.gather_copies(action.group, action.writes.front(), kept_slot)) {
      start_copy(to, from);
    }
    return;
  }
  const BucketState& bucket = state_.bucket(action.group, action.bucket);
  if (action.writes.empty()) return start_copy(bucket.parameters, bucket.cast);
  start_copy(state_.shard_in(action.group, action.bucket, action.writes.front()), bucket.master);
}

void Executor::d2h(const Action& action) {
  const at::NoGradGuard no_grad;
  const at::Tensor from = state_.shard_in(action.group, action.bucket, action.reads.front());
  const bool is_master = action.writes.empty();
  start_copy(is_master ? state_.bucket(action.group, action.bucket).master
                       : state_.shard_in(action.group, action.bucket, action.writes.front()),
             from);
}

void Executor::cast_shard(const Action& action) {
  if (action.bucket >= 0) {
    return do_on_stream(action, [bucket = state_.bucket(action.group, action.bucket)] {
      const at::NoGradGuard no_grad;
      bucket.cast.copy_(bucket.master);
    });
  }
  const at::NoGradGuard no_grad;
  const int kept_slot = action.reads.empty() ? -1 : action.reads.front();
  for (const auto& [to, from] :
       state_.gather_copies(action.group, action.writes.front(), kept_slot)) {
    to.copy_(from);
  }
}

void Executor::all_gather(const Action& action) {
  auto* memory = static_cast<std::byte*>(state_.slot(action.writes.front()).data_ptr());
  std::vector<GatherBuffer> buffers;
  for (const Bucket& bucket : schedule().groups[action.group].buckets) {
    if (!bucket.whole) buffers.push_back({memory, bucket.numel, bucket.dtype});
    memory += bucket.parameter_bytes();
  }
  check(schedule().groups[action.group].parameter_bytes() <=
            schedule().slot(action.writes.front()).bytes,
        "a slot is smaller than the group that is gathered there");
  add_issued(action, channels_.at(action.channel).all_gather(operation(action), buffers));
}

void Executor::reshard(const Action& action) {
  const at::NoGradGuard no_grad;
  state_.unbind(action.group);
  if (action.writes.size() == 1) return;
  for (const auto& [to, from] :
       state_.keep_copies(action.group, action.writes.front(), action.writes.back())) {
    to.copy_(from);
  }
}

void Executor::reduce_scatter(const Action& action) {
  const bool receives = action.writes.size() > 1;
  const ReduceBuffers buffers{
      .input = state_.slot(action.reads.front()).data_ptr(),
      .output = state_.shard_in(action.group, action.bucket, action.writes.front()).data_ptr(),
      .receive = receives ? state_.slot(action.writes.back()).data_ptr() : nullptr,
      .shard_numel = schedule().shard_numel(schedule().bucket_of(action)),
      .dtype = schedule().reduce_dtype};
  add_issued(action, channels_.at(action.channel).reduce_scatter(operation(action), buffers));
}

void Executor::all_reduce(const Action& action) {
  const int slot_index = action.reads.front();
  const planner::Slot& slot = schedule().slot(slot_index);
  const int64_t used_bytes = schedule().used_bytes(action, slot_index);
  check(used_bytes <= slot.bytes && used_bytes % bytes_of(slot.dtype) == 0,
        "a reduction needs more than its slot has");
  const int64_t numel = used_bytes / bytes_of(slot.dtype);
  void* const data = action.group < 0
                         ? state_.slot(slot_index).data_ptr()
                         : state_.shard_in(action.group, action.bucket, slot_index).data_ptr();
  add_issued(action,
             channels_.at(action.channel).all_reduce(operation(action), data, numel, slot.dtype));
}

void Executor::accumulate(const Action& action) {
  const at::Tensor shard = state_.shard_in(action.group, action.bucket, action.reads.front());
  const at::Tensor sum = state_.shard_in(action.group, action.bucket, action.writes.front());
  do_on_stream(action, [shard, sum, is_first = action.microbatch == 0] {
    const at::NoGradGuard no_grad;
    if (is_first) {
      sum.copy_(shard);
    } else {
      sum.add_(shard);
    }
  });
}

void Executor::copy_to_host(at::Tensor& to, const at::Tensor& from) {
  if (!to.defined()) to = pinned_like(from);
  start_copy(to, from);
}

std::function<void(const StepScalars&)> Executor::step_of(const Action& action) {
  at::Tensor gradient = state_.shard_in(action.group, action.bucket, action.reads.front());
  at::Tensor cast;
  BucketState bucket = state_.bucket(action.group, action.bucket);
  for (const int slot : action.writes) {
    const bool is_master = schedule().slot(slot).kind == planner::SlotKind::master;
    (is_master ? bucket.master : cast) = state_.shard_in(action.group, action.bucket, slot);
  }
  return [this, bucket, gradient, cast](const StepScalars& scalars) mutable {
    if (cast.defined()) gradient = cast.copy_(gradient);
    step_bucket(optimizer_, bucket, gradient, scalars);
  };
}

Operation Executor::operation(const Action& action) const {
  return {
      .step = step_,
      .kind = to_string(action.kind),
      .group = action.group < 0 ? "all" : std::string_view(schedule().groups[action.group].name),
      .bucket = action.bucket};
}

void Executor::add_issued(const Action& action, Ticket ticket) {
  check(issued_.empty() || issued_.back().action < current(),
        "an action issues two collectives, or is late");
  issued_.push_back({current(), &channels_.at(action.channel), ticket});
}

}  // namespace shardlens::runtime
