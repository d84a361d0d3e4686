// The actions that move parameters and gradients between ranks, and apply the gradients.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <utility>

#include "runtime/executor.h"

namespace shardlens::runtime {

using planner::Action;
using planner::Bucket;

void Executor::cast_shard(const Action& action) {
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
  for (const Bucket& bucket : schedule_->groups[action.group].buckets) {
    if (!bucket.whole) buffers.push_back({memory, bucket.numel, bucket.dtype});
    memory += bucket.parameter_bytes();
  }
  issued(action, channels_.at(action.channel).all_gather(operation(action), buffers));
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
      .output = state_.slot(action.writes.front()).data_ptr(),
      .receive = receives ? state_.slot(action.writes.back()).data_ptr() : nullptr,
      .shard_numel = schedule_->shard_numel(schedule_->bucket_of(action)),
      .dtype = schedule_->reduce_dtype};
  issued(action, channels_.at(action.channel).reduce_scatter(operation(action), buffers));
}

void Executor::all_reduce(const Action& action) {
  const int slot_index = action.reads.front();
  const planner::Slot& slot = schedule_->slot(slot_index);
  const int64_t numel = schedule_->used_bytes(action, slot_index) / planner::bytes_of(slot.dtype);
  issued(action,
         channels_.at(action.channel)
             .all_reduce(operation(action), state_.slot(slot_index).data_ptr(), numel, slot.dtype));
}

void Executor::accumulate(const Action& action) {
  const at::NoGradGuard no_grad;
  const at::Tensor shard = state_.shard_in(action.group, action.bucket, action.reads.front());
  const at::Tensor sum = state_.shard_in(action.group, action.bucket, action.writes.front());
  if (action.microbatch == 0) {
    sum.copy_(shard);
  } else {
    sum.add_(shard);
  }
}

void Executor::clip(const Action& action) {
  const at::NoGradGuard no_grad;
  const at::Tensor& norm = state_.slot(action.writes.front());
  if (!std::exchange(is_norm_begun_, true)) norm.zero_();
  if (action.group < 0) {
    // The mean over shards times their number is the sum.
    gradient_scale_.finish(norm, schedule_->shards, scalars_);
    return;
  }
  // What every rank holds would be counted by each.
  const Bucket& bucket = schedule_->bucket_of(action);
  const double share = static_cast<double>(schedule_->shards_of(bucket)) / schedule_->shards;
  gradient_scale_.add(state_.shard_in(action.group, action.bucket, action.reads.front()), share,
                      norm);
}

void Executor::count_step() {
  if (std::exchange(is_counted_, true)) return;
  scalars_.count = state_.step_count();
  scalars_.count.add_(1);
  if (scalars_.overflowed.defined()) scalars_.count.sub_(scalars_.overflowed);
}

void Executor::optimizer_step(const Action& action) {
  const at::NoGradGuard no_grad;
  count_step();
  at::Tensor gradient = state_.shard_in(action.group, action.bucket, action.reads.front());
  if (!action.writes.empty()) {
    const at::Tensor cast = state_.shard_in(action.group, action.bucket, action.writes.front());
    gradient = cast.copy_(gradient);
  }
  step_bucket(options_.optimizer, state_.bucket(action.group, action.bucket), gradient, scalars_);
}

}  // namespace shardlens::runtime
