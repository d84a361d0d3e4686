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

namespace {

/// Returns, by place in the list, true if an action on another stream waits for the action there.
std::vector<bool> awaited_in(const Schedule& schedule) {
  const planner::Repetition& repetition = schedule.repetition;
  std::vector<bool> awaited(schedule.actions.size());
  const auto add_waits = [&](int id) {
    for (const int wait : schedule.waits_of(id)) awaited[repetition.index_of(wait)] = true;
  };
  for (int index = 0; index < static_cast<int>(schedule.actions.size()); ++index) {
    const int id = repetition.first_id_of(index);
    add_waits(id);
    const bool comes_again = repetition.times > 1 && repetition.is_in_round(index);
    if (comes_again) add_waits(id + repetition.length());
  }
  return awaited;
}

}  // namespace

ExecutorOptions executor_options(const planner::Config& config) {
  return {.optimizer = optimizer_options(config),
          .gradient_scale = {.clip_norm = config.clip_norm,
                             .loss_scale = planner::loss_scale_of(config)},
          .output_dtype = planner::output_dtype_of(config),
          .compute_dtype = config.keep_fp32.empty()
                               ? std::nullopt
                               : std::optional(planner::strategy_of(config).param_dtype),
          .cast_inputs = config.cast_inputs};
}

Executor::Executor(const models::ModelSpec& spec, RankState& state, Streams& streams,
                   Channels channels, ExecutorOptions options)
    : spec_(spec),
      units_(options.units.empty() ? models::build_units(spec) : options.units),
      state_(state),
      streams_(streams),
      channels_(channels),
      options_(std::move(options)),
      gradient_scale_(options_.gradient_scale, state.device()),
      space_(state.device().is_cuda() ? profiler::Space::device : profiler::Space::host),
      host_(state.device().is_cuda()) {
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    input_dtypes_.push_back(options_.cast_inputs ? input_dtype(static_cast<int>(unit))
                                                 : std::nullopt);
  }
  install_hooks();
}

void Executor::run(const Schedule& schedule, int64_t step, const LoadBatch& load_batch) {
  begin(schedule, step, load_batch);
  at::AutoGradMode grad_mode(trains_);
  profiler::Scope scope({});
  scope_ = &scope;
  while (next_ < schedule.size()) execute(next_++);
  scope_ = nullptr;
  complete_all();
  host_.join();
  streams_.end();
  if (inspection_ != nullptr) inspection_->end_pass(schedule);
}

void Executor::begin(const Schedule& schedule, int64_t step, const LoadBatch& load_batch) {
  schedule_ = &schedule;
  load_batch_ = &load_batch;
  step_ = step;
  next_ = 0;
  awaited_ = awaited_in(schedule);
  slot_lives_ = schedule.slot_lives();
  issued_.clear();
  inputs_.assign(units_.size(), {});
  outputs_.assign(units_.size(), {});
  gradients_.assign(spec_.parameters.size(), {});
  plans_ = schedule.unit_plans();
  trains_ = std::ranges::any_of(plans_, &planner::UnitPlan::trains);
  sums_apart_ = schedule.sums_apart();
  scalars_ = {};
  loss_.reset();
  logits_.reset();
  is_norm_begun_ = false;
  is_counted_ = false;
  choose_recorder();
  streams_.begin(schedule.actions.size());
}

void Executor::execute(int id) {
  const Action& action = schedule_->action(id);
  current_ = id;
  if (observer_) observer_(id);
  wait_for(id);
  if (inspection_ != nullptr) inspection_->enter(*schedule_, step_, id);
  if (recorder_ != nullptr) recorder_->begin_action(id);
  const profiler::Purpose before =
      scope_->change({planner::category_of(action.kind), label_of(action), id});
  const bool is_beside =
      action.stream != planner::Stream::main && action.stream != planner::Stream::host;
  if (is_beside) streams_.select(action.stream);
  dispatch(action);
  if (is_beside) streams_.select(planner::Stream::main);
  // The last gradient finishes a segment of BACKWARD, before autograd returns. What the unit's
  // backward allocates after the segment has begun belongs to the segment.
  if (action.kind == ActionKind::backward) return;
  scope_->change(before);
  finish(id);
  end_action(id);
}

void Executor::finish(int id) {
  const int index = index_of(id);
  for (const int slot : slot_lives_.end[index]) state_.end_slot(slot);
  for (const int slot : slot_lives_.begin[index]) state_.begin_slot(slot);
  const planner::Stream stream = schedule_->action(id).stream;
  if (awaited_[index] && stream != planner::Stream::host) streams_.record(index, stream);
}

void Executor::end_action(int id) {
  if (recorder_ != nullptr) recorder_->end_action(id);
}

/// Chooses the active recorder, and asks it for labels: each recorder knows only the labels that it
/// gave.
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
    case ActionKind::forward:
      return forward(action);
    case ActionKind::loss:
      return compute_loss();
    case ActionKind::recompute:
      return recompute(action);
    case ActionKind::backward:
      return backward(action);
    case ActionKind::reduce_scatter:
      return reduce_scatter(action);
    case ActionKind::all_reduce:
      return all_reduce(action);
    case ActionKind::accumulate:
      return accumulate(action);
    case ActionKind::clip:
      return clip(action);
    case ActionKind::optimizer_step:
      return optimizer_step(action);
  }
}

void Executor::wait_for(int id) {
  const planner::Stream stream = schedule_->action(id).stream;
  for (const int earlier : schedule_->waits_of(id)) {
    complete(earlier);
    if (schedule_->action(earlier).stream == planner::Stream::host) {
      host_.wait(earlier);
    } else if (stream != planner::Stream::host) {
      streams_.wait(stream, index_of(earlier));
    }
  }
}

/// Does the work at once, or if the action is the host's, when all that it waits for on the device
/// has ended.
void Executor::do_on_stream(const Action& action, HostQueue::Work work) {
  if (action.stream != planner::Stream::host) return work();
  const profiler::Purpose purpose{planner::category_of(action.kind), label_of(action), current_};
  std::vector<int> events;
  for (const int earlier : schedule_->waits_of(current_)) events.push_back(index_of(earlier));
  host_.post(current_, [this, events = std::move(events), purpose, work = std::move(work)] {
    for (const int event : events) streams_.synchronize(event);
    const profiler::Scope scope(purpose);
    work();
  });
}

/// Waits for the action and for earlier ones, because a communicator's tickets are waited for in
/// the order of issue.
void Executor::complete(int id) {
  const auto found = std::find_if(issued_.begin(), issued_.end(),
                                  [&](const Issued& one) { return one.action == id; });
  if (found == issued_.end()) return;
  Communicator* const communicator = found->communicator;
  std::erase_if(issued_, [&](const Issued& one) {
    if (one.communicator != communicator || one.action > id) return false;
    communicator->wait(one.ticket);
    return true;
  });
}

void Executor::complete_all() {
  while (!issued_.empty()) complete(issued_.back().action);
}

/// Begins all gradients anew, except that sums of earlier microbatches stay where they are.
void Executor::begin_microbatch() {
  for (size_t i = 0; i < gradients_.size(); ++i) {
    const Place& place = state_.place(static_cast<int>(i));
    const bool continues = gradients_[i].stored && !sums_apart_[place.group][place.bucket];
    gradients_[i] = {.stored = continues, .early = false};
  }
}

void Executor::load_input() {
  begin_microbatch();
  batch_ = (*load_batch_)();
  carried_ = batch_.input;
}

Operation Executor::operation(const Action& action) const {
  return {
      .step = step_,
      .kind = planner::to_string(action.kind),
      .group = action.group < 0 ? "all" : std::string_view(schedule_->groups[action.group].name),
      .bucket = action.bucket};
}

void Executor::issued(const Action& action, Ticket ticket) {
  issued_.push_back({current_, &channels_.at(action.channel), ticket});
}

}  // namespace shardlens::runtime
