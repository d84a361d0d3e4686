#include "runtime/executor.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>

#include "runtime/check.h"
#include "runtime/null_inspection.h"

namespace shardlens::runtime {

using planner::Action;
using planner::ActionKind;
using planner::Bucket;
using planner::Schedule;
using profiler::Category;

namespace {

/// What an action's allocations are for.
Category category_of(ActionKind kind) {
  switch (kind) {
    case ActionKind::load_input:
      return Category::input;
    case ActionKind::forward:
    case ActionKind::loss:
    case ActionKind::backward:
      return Category::activation;
    case ActionKind::all_gather:
    case ActionKind::reduce_scatter:
    case ActionKind::all_reduce:
      return Category::communication;
    case ActionKind::cast_shard:
    case ActionKind::reshard:
    case ActionKind::optimizer_step:
      return Category::workspace;
  }
  return Category::other;
}

struct GradientHook : torch::autograd::PostAccumulateGradHook {
  explicit GradientHook(std::function<void()> call) : call(std::move(call)) {}
  void operator()(const at::Tensor&) override { call(); }
  std::function<void()> call;
};

/// Gradients that a BACKWARD segment gives to its bucket.
int gradients_of(const models::UnitSpec& unit, const Bucket& bucket) {
  return static_cast<int>(std::count_if(
      bucket.entries.begin(), bucket.entries.end(), [&](const planner::BucketEntry& entry) {
        return std::count(unit.parameters.begin(), unit.parameters.end(), entry.parameter) > 0;
      }));
}

/// By action, whether one on another stream waits for it.
std::vector<bool> awaited_in(const Schedule& schedule) {
  std::vector<bool> awaited(schedule.actions.size());
  for (const Action& action : schedule.actions) {
    for (const int id : action.waits) awaited[id] = true;
  }
  return awaited;
}

bool has_backward(const Schedule& schedule) {
  return std::any_of(schedule.actions.begin(), schedule.actions.end(),
                     [](const Action& action) { return action.kind == ActionKind::backward; });
}

}  // namespace

Executor::Executor(const models::ModelSpec& spec, RankState& state, Streams& streams,
                   Channels channels, const AdamOptions& adam)
    : spec_(spec),
      units_(models::build_units(spec)),
      state_(state),
      streams_(streams),
      channels_(channels),
      adam_(adam),
      space_(state.device().is_cuda() ? profiler::Space::device : profiler::Space::host) {
  install_hooks();
}

void Executor::install_hooks() {
  for (size_t i = 0; i < spec_.parameters.size(); ++i) {
    const int parameter = static_cast<int>(i);
    torch::autograd::impl::set_post_acc_grad_hooks(
        state_.weight(parameter),
        std::make_unique<GradientHook>([this, parameter] { on_gradient(parameter); }));
  }
}

void Executor::run(const Schedule& schedule, int64_t step, const LoadBatch& load_batch) {
  begin(schedule, step, load_batch);
  at::AutoGradMode grad_mode(trains_);
  while (next_ < static_cast<int>(schedule.actions.size())) execute(next_++);
  if (inspection_ != nullptr) inspection_->end_pass(schedule);
}

void Executor::begin(const Schedule& schedule, int64_t step, const LoadBatch& load_batch) {
  schedule_ = &schedule;
  load_batch_ = &load_batch;
  step_ = step;
  next_ = 0;
  awaited_ = awaited_in(schedule);
  tickets_.assign(schedule.actions.size(), std::nullopt);
  inputs_.assign(units_.size(), {});
  outputs_.assign(units_.size(), {});
  gradients_.assign(spec_.parameters.size(), {});
  trains_ = has_backward(schedule);
  choose_recorder();
  if (trains_) state_.step_count().add_(1);
  streams_.begin(schedule.actions.size());
}

void Executor::execute(int id) {
  const Action& action = schedule_->actions[id];
  if (observer_) observer_(id);
  wait_for(action);
  if (inspection_ != nullptr) inspection_->enter(*schedule_, step_, id);
  if (recorder_ != nullptr) recorder_->begin_action(id);
  const profiler::Scope scope(category_of(action.kind), label_of(action), id);
  const bool is_beside = action.stream != planner::Stream::main;
  if (is_beside) streams_.select(action.stream);
  dispatch(action);
  if (is_beside) streams_.select(planner::Stream::main);
  // A segment of BACKWARD is finished by its last gradient, before autograd returns.
  if (action.kind == ActionKind::backward) return;
  finish(id);
  end_action(id);
}

void Executor::finish(int id) {
  if (awaited_[id]) streams_.record(id, schedule_->actions[id].stream);
}

void Executor::end_action(int id) {
  if (recorder_ != nullptr) recorder_->end_action(id);
}

/// A recorder knows the labels that it gave.
void Executor::choose_recorder() {
  profiler::Recorder* const active = profiler::Recorder::active();
  if (std::exchange(recorder_, active) == active) return;
  unit_labels_.clear();
  group_labels_.clear();
  if (recorder_ == nullptr) return;
  for (const auto& unit : spec_.units) unit_labels_.push_back(recorder_->label(unit.name));
  for (const planner::Group& group : schedule_->groups) {
    group_labels_.push_back(recorder_->label(group.name));
  }
}

uint32_t Executor::label_of(const Action& action) const {
  if (recorder_ == nullptr) return 0;
  if (action.unit >= 0) return unit_labels_[action.unit];
  return action.group >= 0 ? group_labels_[action.group] : 0;
}

void Executor::dispatch(const Action& action) {
  switch (action.kind) {
    case ActionKind::load_input:
      return load_input();
    case ActionKind::cast_shard:
      return cast_shard(action);
    case ActionKind::all_gather:
      return all_gather(action);
    case ActionKind::reshard:
      return reshard(action);
    case ActionKind::forward:
      return forward(action);
    case ActionKind::loss:
      return compute_loss();
    case ActionKind::backward:
      return backward(action);
    case ActionKind::reduce_scatter:
      return reduce_scatter(action);
    case ActionKind::all_reduce:
      return all_reduce(action);
    case ActionKind::optimizer_step:
      return optimizer_step(action);
  }
}

void Executor::wait_for(const Action& action) {
  for (const int id : action.waits) {
    streams_.wait(action.stream, id);
    if (!tickets_[id]) continue;
    channel(schedule_->actions[id].channel).wait(*std::exchange(tickets_[id], std::nullopt));
  }
}

void Executor::load_input() {
  batch_ = (*load_batch_)();
  carried_ = batch_.images;
}

void Executor::cast_shard(const Action& action) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor>& ranges = state_.own_ranges(action.group, action.writes.front());
  for (size_t bucket = 0; bucket < ranges.size(); ++bucket) {
    ranges[bucket].copy_(state_.bucket(action.group, static_cast<int>(bucket)).master);
  }
}

void Executor::all_gather(const Action& action) {
  auto* memory = static_cast<std::byte*>(state_.slot(action.writes.front()).data_ptr());
  std::vector<GatherBuffer> buffers;
  for (const Bucket& bucket : schedule_->groups[action.group].buckets) {
    buffers.push_back({memory, bucket.numel, bucket.dtype});
    memory += bucket.numel * planner::bytes_of(bucket.dtype);
  }
  issued(action, channels_.gather->all_gather(operation(action), buffers));
}

void Executor::reshard(const Action& action) { state_.unbind(action.group); }

void Executor::bind_weights(const Action& action) {
  if (!action.reads.empty() && !state_.is_bound(action.group)) {
    state_.bind(action.group, action.reads.front());
  }
}

std::vector<at::Tensor> Executor::unit_weights(int unit) const {
  std::vector<at::Tensor> weights;
  for (const int parameter : spec_.units[unit].parameters) {
    weights.push_back(state_.weight(parameter));
  }
  return weights;
}

void Executor::forward(const Action& action) {
  bind_weights(action);
  // The boundary: backward of this unit ends here and hands its gradient on.
  at::Tensor input = std::move(carried_);
  if (trains_) input = input.detach().requires_grad_(action.unit > 0);
  at::Tensor output = units_[action.unit](input, unit_weights(action.unit));
  carried_ = output.detach();
  if (!trains_) return;
  inputs_[action.unit] = std::move(input);
  outputs_[action.unit] = std::move(output);
}

void Executor::compute_loss() {
  logits_ = std::move(carried_);
  if (!trains_) {
    loss_ = models::loss(logits_, batch_.labels);
    return;
  }
  const at::Tensor logits = logits_.detach().requires_grad_(true);
  const at::Tensor loss = models::loss(logits, batch_.labels);
  loss.backward();
  loss_ = loss.detach();
  carried_ = logits.grad();
}

void Executor::backward(const Action& action) {
  const bool continues = segment_.unit == action.unit;
  bind_weights(action);
  begin_segment(action);
  if (continues) {
    unit_scope_->enter_action(segment_.action);
    return;
  }
  profiler::Scope scope(Category::activation, label_of(action), segment_.action);
  unit_scope_ = &scope;
  run_autograd(action.unit);
}

void Executor::begin_segment(const Action& action) {
  const Bucket& bucket = schedule_->groups[action.group].buckets[action.bucket];
  segment_ = {.action = static_cast<int>(&action - schedule_->actions.data()),
              .unit = action.unit,
              .group = action.group,
              .bucket = action.bucket,
              .slot = action.writes.front(),
              .missing = gradients_of(spec_.units[action.unit], bucket)};
  const auto& entries = bucket.entries;
  const bool first = std::none_of(entries.begin(), entries.end(), [&](const auto& entry) {
    return gradients_[entry.parameter].stored;
  });
  if (first) state_.zero_padding(action.group, action.bucket, segment_.slot);
  for (const planner::BucketEntry& entry : entries) {
    if (gradients_[entry.parameter].early) store_gradient(entry.parameter);
  }
}

void Executor::run_autograd(int unit) {
  at::Tensor output = std::move(outputs_[unit]);
  try {
    output.backward(std::exchange(carried_, {}));
  } catch (...) {
    // Autograd may wrap what a hook throws; the caller wants the error itself.
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    throw;
  }
  check(segment_.unit == unit && segment_.missing == 0 && !next_segment(unit), [&] {
    return fmt::format("{}: {} parameters got no gradient", spec_.units[unit].name,
                       segment_.missing);
  });
  carried_ = inputs_[unit].grad();
  inputs_[unit].reset();
  end_action(segment_.action);
  segment_ = {};
}

void Executor::on_gradient(int parameter) {
  const at::NoGradGuard no_grad;
  try {
    const Place& place = state_.place(parameter);
    if (recorder_ != nullptr) {
      recorder_->recategorise(space_, state_.weight(parameter).grad().data_ptr(),
                              Category::gradient);
    }
    if (place.group != segment_.group || place.bucket != segment_.bucket) {
      gradients_[parameter].early = true;
      return;
    }
    store_gradient(parameter);
    continue_unit();
  } catch (...) {
    failure_ = std::current_exception();
    throw;
  }
}

void Executor::store_gradient(int parameter) {
  at::Tensor& gradient = state_.weight(parameter).mutable_grad();
  const at::Tensor& range = state_.gradient(parameter, segment_.slot);
  if (gradients_[parameter].stored) {
    range.add_(gradient);
  } else {
    range.copy_(gradient);
  }
  gradient.reset();
  gradients_[parameter] = {.stored = true, .early = false};
  --segment_.missing;
}

/// Runs the schedule up to the unit's next segment, as often as a segment is already complete.
void Executor::continue_unit() {
  while (segment_.missing == 0) {
    finish(segment_.action);
    const std::optional<int> next = next_segment(segment_.unit);
    if (!next) return;  // the input's gradient may still come
    end_action(segment_.action);
    while (next_ <= *next) execute(next_++);
  }
}

std::optional<int> Executor::next_segment(int unit) const {
  for (size_t id = static_cast<size_t>(next_); id < schedule_->actions.size(); ++id) {
    const Action& action = schedule_->actions[id];
    if (action.kind != ActionKind::backward) continue;
    if (action.unit != unit) return std::nullopt;
    return static_cast<int>(id);
  }
  return std::nullopt;
}

void Executor::reduce_scatter(const Action& action) {
  const Bucket& bucket = schedule_->groups[action.group].buckets[action.bucket];
  const int64_t shard_numel = bucket.numel / schedule_->shards;
  const bool receives = action.writes.size() > 1;
  const ReduceBuffers buffers{
      .input = state_.slot(action.reads.front()).data_ptr(),
      .output = state_.slot(action.writes.front()).data_ptr(),
      .receive = receives ? state_.slot(action.writes.back()).data_ptr() : nullptr,
      .shard_numel = shard_numel,
      .dtype = planner::kGradientDType};
  issued(action, channels_.reduce->reduce_scatter(operation(action), buffers));
}

void Executor::all_reduce(const Action& action) {
  const Bucket& bucket = schedule_->groups[action.group].buckets[action.bucket];
  void* gradients = state_.slot(action.reads.front()).data_ptr();
  issued(action, channels_.reduce->all_reduce(operation(action), gradients, bucket.numel,
                                              planner::kGradientDType));
}

void Executor::optimizer_step(const Action& action) {
  const at::NoGradGuard no_grad;
  BucketState& bucket = state_.bucket(action.group, action.bucket);
  const at::Tensor& gradient =
      state_.reduced_gradient(action.group, action.bucket, action.reads.front());
  at::_fused_adam_({bucket.master}, {gradient}, {bucket.exp_avg}, {bucket.exp_avg_sq}, {},
                   {state_.step_count()}, adam_.lr, adam_.beta1, adam_.beta2,
                   /*weight_decay=*/0.0, adam_.eps, /*amsgrad=*/false, /*maximize=*/false);
}

Operation Executor::operation(const Action& action) const {
  return {.step = step_,
          .kind = planner::to_string(action.kind),
          .group = schedule_->groups[action.group].name,
          .bucket = action.bucket};
}

void Executor::issued(const Action& action, Ticket ticket) {
  tickets_[static_cast<size_t>(&action - schedule_->actions.data())] = ticket;
}

Communicator& Executor::channel(planner::Channel channel) const {
  return channel == planner::Channel::gather ? *channels_.gather : *channels_.reduce;
}

}  // namespace shardlens::runtime
