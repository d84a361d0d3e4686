// Interprets a schedule: one short function an action, in the order of the list. It is written once
// for every kind of tensor: the runtime's executor has LibTorch's and does what actions say on a
// rank, the planner's simulator has tensors that only count their memory. So both take and free the
// same memory in the same order.
//
// The schedule alone sets the order. Autograd could change it in one place only, inside a unit's
// backward, and there the gradient hook runs the schedule's next actions as soon as a segment's
// gradients have arrived (see [Note: backward in segments] in planner/schedule/schedule.h).
//
// `Ops` is a struct with Tensor, Batch (input and targets), Edge (where backward of an output
// begins), type_of(dtype), edge(output), gradient(input), and what gradient_scale.h names.
//
// `Backend` is the class that derives from the interpreter. It has
//   state()                      what a rank keeps: weight(parameter), slot(index), step_count(),
//     shard_in(group, bucket, slot), zero_padding(group, bucket, slot), begin_slot(), end_slot()
//   begin_pass(is_new)           is_new: of another schedule; true: labels have changed
//   label(name), enter(action, label), leave(action, before), end_action(id), finish_action(id)
//     receive the pass's place in the schedule; enter() returns what leave() gets
//   grad_mode(enabled)           turns autograd on or off while what it returns lives
//   bind(action)                 points a group's weights at the slot that the action reads
//   run_backward(edge, gradient), which calls on_gradient() when a parameter's gradient has come,
//     and may ask slot_for() before one is computed
//   recategorise_gradient(parameter), store_gradient(parameter, slot, adds)
//   loss_of(logits, targets), loss_and_gradient(logits, targets, weight)
//   do_on_stream(action, work)   does the work now, or if it is the host's, in parallel
//   move(action)                 copies, casts and collectives
//   copy_to_host(to, from)
//   step_of(action)              returns a function that steps the action's bucket, given scalars
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "models/spec.h"
#include "planner/schedule/schedule.h"
#include "planner/step/gradient_scale.h"
#include "planner/step/step.h"

namespace shardlens::planner {

template <class Backend, class Ops>
class Interpreter {
 public:
  using Tensor = typename Ops::Tensor;
  using Batch = typename Ops::Batch;
  using Unit = std::function<Tensor(const Tensor& input, std::span<const Tensor> parameters)>;
  using BatchLoader = std::function<Batch()>;
  /// A function that is asked where a round of the schedule's repetition begins; `left` counts the
  /// rounds to come, this one included. Returns how many of them are left out.
  using RoundSkipper = std::function<int64_t(int64_t left)>;
  static int64_t none_left_out(int64_t) { return 0; }

  /// `units` has each unit's code. Keeps a reference to the spec. Scalars are on `device`.
  Interpreter(const models::ModelSpec& spec, std::vector<Unit> units, const StepOptions& options,
              const typename Ops::Device& device)
      : spec_(spec),
        units_(std::move(units)),
        options_(options),
        scale_(options.gradient_scale, device) {}
  Interpreter(const Interpreter&) = delete;

  /// These return values of the last run: the mean loss of its microbatches (fp32 scalar), after an
  /// evaluation the logits, and the targets of the last microbatch.
  const Tensor& loss() const { return loss_; }
  const Tensor& logits() const { return logits_; }
  const Tensor& targets() const { return batch_.targets; }

  /// Returns what clipping and loss scaling know about the last step.
  const GradientScale<Ops>& gradient_scale() const { return scale_; }

 protected:
  const Schedule& schedule() const { return *schedule_; }
  int current() const { return current_; }  // the action that began last

  /// Runs a training step or an evaluation pass, and asks for a batch once a microbatch. The
  /// schedule must outlive the next run.
  void run(const Schedule& schedule, const BatchLoader& load_batch,
           const RoundSkipper& leave_out = none_left_out) {
    load_batch_ = &load_batch;
    begin(schedule);
    const auto grad_mode = backend().grad_mode(trains_);
    while (next_ < schedule.size()) {
      leave_out_rounds(leave_out);
      if (next_ < schedule.size()) execute(next_++);
    }
    check(next_ == schedule.size(), "a step ends before its last action, or behind it");
    check(segment_.unit < 0 && segment_.missing == 0, "a step ends within a unit's backward");
  }

  void relabel() {
    const auto labels_of = [this](const auto& all) {
      std::vector<uint32_t> labels;
      for (const auto& named : all) labels.push_back(backend().label(named.name));
      return labels;
    };
    unit_labels_ = labels_of(spec_.units);
    if (schedule_ != nullptr) group_labels_ = labels_of(schedule_->groups);
  }

  uint32_t label_of(const Action& action) const {
    if (action.unit >= 0) return unit_labels_[action.unit];
    return action.group >= 0 ? group_labels_[action.group] : 0;
  }

  /// Returns the reduce slot for a gradient that comes in its bucket's turn, is the first in the
  /// slot and needs no cast; else -1.
  int slot_for(int parameter) {
    constexpr int kNone = -1;
    if (segment_.bucket < 0 || !is_turn(parameter)) return kNone;
    Gradient& gradient = gradients_[parameter];
    const Type type = Ops::type_of(schedule_->slot(segment_.slot).dtype);
    if (gradient.stored || gradient.placed ||
        backend().state().weight(parameter).scalar_type() != type) {
      return kNone;
    }
    gradient.placed = true;
    return segment_.slot;
  }

  void on_gradient(int parameter) {
    Gradient& gradient = gradients_[parameter];
    if (!gradient.placed) backend().recategorise_gradient(parameter);
    gradient.early = !is_turn(parameter);
    if (gradient.early) return;
    store_gradient(parameter);
    continue_unit();
  }

 private:
  using Type = decltype(Ops::type_of(DType{}));
  using Scalars = StepScalars<Tensor>;

  /// Describes the part of a unit's backward that fills one bucket.
  struct Segment {
    int action = -1;
    int unit = -1;
    int group = -1;
    int bucket = -1;
    int slot = -1;
    int missing = 0;  // gradients still to come
  };

  /// Holds the state of a parameter's gradient in this microbatch.
  struct Gradient {
    bool stored = false;  // in its reduce slot, also of an earlier microbatch; more is added
    bool early = false;   // came before its bucket's segment, waits at its leaf
    bool placed = false;  // a place was given out for it, once
  };

  Backend& backend() { return static_cast<Backend&>(*this); }

  // ---- the order --------------------------------------------------------------------------------

  void begin(const Schedule& schedule) {
    const bool is_new = std::exchange(schedule_, &schedule) != &schedule;
    if (is_new) {
      plans_ = schedule.unit_plans();
      trains_ = std::ranges::any_of(plans_, &UnitPlan::trains);
      places_ = places_of(schedule);
      check(places_.size() == spec_.parameters.size(), "a parameter lies in no bucket");
      check(plans_.size() == units_.size(), "a schedule of another model's units");
      sums_apart_ = schedule.sums_apart();
      slot_lives_ = schedule.slot_lives();
      input_types_.resize(units_.size());
      for (size_t unit = 0; unit < units_.size() && options_.cast_inputs; ++unit) {
        input_types_[unit] = input_type(unit);
      }
    }
    next_ = 0;
    inputs_.assign(units_.size(), {});
    outputs_.assign(units_.size(), {});
    gradients_.assign(spec_.parameters.size(), {});
    scalars_ = {};
    loss_ = Tensor();
    logits_ = Tensor();
    is_norm_begun_ = false;
    is_counted_ = false;
    if (backend().begin_pass(is_new)) relabel();
  }

  void leave_out_rounds(const RoundSkipper& leave_out) {
    const Repetition& repetition = schedule_->repetition;
    if (repetition.times == 1 || repetition.index_of(next_) != repetition.begin) return;
    const int left = repetition.times - repetition.round_of(next_);
    const int64_t left_out = leave_out(left);
    check(left_out >= 0 && left_out <= left, "more rounds are left out than are to come");
    next_ += static_cast<int>(left_out) * repetition.length();
  }

  void execute(int id) {
    const Action& action = schedule_->action(id);
    current_ = id;
    const auto before = backend().enter(action, label_of(action));
    dispatch(action);
    // The last gradient finishes a segment of BACKWARD, before autograd returns. What the unit's
    // backward allocates after the segment has begun belongs to the segment.
    if (action.kind == ActionKind::backward) return;
    backend().leave(action, before);
    finish(id);
    backend().end_action(id);
  }

  void finish(int id) {
    const int index = schedule_->repetition.index_of(id);
    for (const int slot : slot_lives_.end[index]) backend().state().end_slot(slot);
    for (const int slot : slot_lives_.begin[index]) backend().state().begin_slot(slot);
    backend().finish_action(id);
  }

  void dispatch(const Action& action) {
    switch (action.kind) {
      case ActionKind::load_input:
        return load_input();
      case ActionKind::forward:
        return forward(action);
      case ActionKind::loss:
        return compute_loss();
      case ActionKind::recompute:
        return recompute(action);
      case ActionKind::backward:
        return backward(action);
      case ActionKind::clip:
        return clip(action);
      case ActionKind::optimizer_step:
        return optimizer_step(action);
      case ActionKind::d2h:
        return action.group < 0 ? copy_scalars() : backend().move(action);
      default:
        return backend().move(action);
    }
  }

  /// Forgets all gradients, except that sums of earlier microbatches stay where they are.
  void begin_microbatch() {
    for (size_t i = 0; i < gradients_.size(); ++i) {
      const ParameterPlace& place = places_[i];
      gradients_[i] = {.stored = gradients_[i].stored && !sums_apart_[place.group][place.bucket]};
    }
  }

  void load_input() {
    begin_microbatch();
    batch_ = (*load_batch_)();
    carried_ = batch_.input;
  }

  // ---- units ------------------------------------------------------------------------------------

  /// Returns the dtype of the unit's parameters, or nothing if they have several: then its code
  /// chooses.
  std::optional<Type> input_type(size_t unit) {
    std::optional<Type> shared;
    for (const int parameter : spec_.units[unit].parameters) {
      const Type type = backend().state().weight(parameter).scalar_type();
      if (shared.value_or(type) != type) return std::nullopt;
      shared = type;
    }
    return shared;
  }

  Tensor run_unit(int unit, const Tensor& input) {
    const std::optional<Type>& type = input_types_[unit];
    const bool is_cast = type && input.is_floating_point();
    const Tensor output = [&] {
      std::vector<Tensor> weights;
      for (const int parameter : spec_.units[unit].parameters) {
        weights.push_back(backend().state().weight(parameter));
      }
      return units_[unit](is_cast ? input.to(*type) : input, weights);
    }();
    return options_.compute_dtype ? output.to(Ops::type_of(*options_.compute_dtype)) : output;
  }

  void forward(const Action& action) {
    backend().bind(action);
    const UnitPlan& plan = plans_[action.unit];
    const bool keeps_graph = plan.trains && !plan.recomputed;
    const auto grad_mode = backend().grad_mode(keeps_graph);
    // This is the boundary: the backward of this unit ends here and hands its gradient on.
    check(carried_.defined(), "a unit runs without an input");
    Tensor input = std::move(carried_);
    if (keeps_graph) input = input.detach().requires_grad_(plan.passes_back);
    const Tensor output = run_unit(action.unit, input);
    carried_ = output.detach();
    if (keeps_graph || plan.begins_run) inputs_[action.unit] = std::move(input);
    // This keeps an edge, not the tensor, because the loss may free the logits.
    if (keeps_graph) outputs_[action.unit] = Ops::edge(output);
  }

  void recompute(const Action& action) {
    backend().bind(action);
    const UnitPlan& plan = plans_[action.unit];
    const Tensor& kept = plan.begins_run ? inputs_[action.unit] : recomputed_;
    check(kept.defined(), "a unit is computed again whose input was not kept");
    Tensor input = kept.detach().requires_grad_(plan.passes_back);
    const Tensor output = run_unit(action.unit, input);
    inputs_[action.unit] = std::move(input);
    outputs_[action.unit] = Ops::edge(output);
    recomputed_ = output.detach();
  }

  void compute_loss() {
    check(carried_.defined(), "a loss without an output");
    if (options_.output_dtype) carried_ = carried_.to(Ops::type_of(*options_.output_dtype));
    if (!trains_) {
      logits_ = std::move(carried_);
      loss_ = backend().loss_of(logits_, batch_.targets);
      return;
    }
    const Tensor weight = scale_.loss_gradient(schedule_->microbatches);
    auto [loss, gradient] =
        backend().loss_and_gradient(std::move(carried_), batch_.targets, weight);
    carried_ = std::move(gradient);
    if (schedule_->microbatches > 1) loss = loss / schedule_->microbatches;
    loss_ = loss_.defined() ? loss_ + loss : loss;
  }

  // ---- backward ---------------------------------------------------------------------------------

  void backward(const Action& action) {
    const bool continues = segment_.unit == action.unit;
    backend().bind(action);
    begin_segment(action);
    if (!continues) run_autograd(action.unit);
  }

  void begin_segment(const Action& action) {
    segment_ = {
        .action = current_, .unit = action.unit, .group = action.group, .bucket = action.bucket};
    if (action.bucket < 0) return;  // the unit trains nothing, and only passes gradients on
    const Bucket& bucket = schedule_->bucket_of(action);
    segment_.slot = action.writes.front();
    segment_.missing = bucket.gradients_of(spec_.units[action.unit]);
    check(segment_.missing > 0, "a segment of backward that fills no bucket");
    const bool is_first = std::ranges::none_of(
        bucket.entries, [&](const auto& entry) { return gradients_[entry.parameter].stored; });
    if (is_first) backend().state().zero_padding(action.group, action.bucket, segment_.slot);
    for (const BucketEntry& entry : bucket.entries) {
      if (gradients_[entry.parameter].early) store_gradient(entry.parameter);
    }
  }

  void run_autograd(int unit) {
    check(inputs_[unit].defined(), "a unit's backward runs before its forward");
    const typename Ops::Edge output = std::exchange(outputs_[unit], {});
    recomputed_ = Tensor();
    backend().run_backward(output, std::exchange(carried_, {}));
    expect_no_gradient_missing(unit);
    if (segment_.bucket < 0) finish(segment_.action);  // no gradient does it
    carried_ = Ops::gradient(inputs_[unit]);
    inputs_[unit] = Tensor();
    backend().end_action(segment_.action);
    segment_ = {};
  }

  void expect_no_gradient_missing(int unit) const {
    check(segment_.unit == unit && (segment_.missing > 0 || !next_segment(unit)),
          "a unit's backward has left out a segment");
    if (segment_.missing == 0) return;
    std::vector<int> all, unused;
    for (const int parameter : spec_.units[unit].parameters) {
      if (!is_turn(parameter)) continue;
      all.push_back(parameter);
      if (!gradients_[parameter].stored) unused.push_back(parameter);
    }
    // A parameter that another unit uses too has a gradient already.
    refuse_unused(spec_, unit, unused.empty() ? all : unused);
  }

  bool is_turn(int parameter) const {
    const ParameterPlace& place = places_[parameter];
    return place.group == segment_.group && place.bucket == segment_.bucket;
  }

  void store_gradient(int parameter) {
    backend().store_gradient(parameter, segment_.slot, gradients_[parameter].stored);
    gradients_[parameter] = {.stored = true};
    check(segment_.slot >= 0 && segment_.missing > 0, "a gradient comes after its segment");
    --segment_.missing;
  }

  /// Runs the schedule up to the unit's next segment, as often as a segment is already complete.
  void continue_unit() {
    while (segment_.missing == 0) {
      finish(segment_.action);
      const std::optional<int> next = next_segment(segment_.unit);
      if (!next) return;  // the input's gradient may still come
      backend().end_action(segment_.action);
      while (next_ <= *next) execute(next_++);
    }
  }

  std::optional<int> next_segment(int unit) const {
    for (int id = next_; id < schedule_->size(); ++id) {
      const Action& action = schedule_->action(id);
      if (action.kind != ActionKind::backward) continue;
      if (action.unit != unit) return std::nullopt;
      return id;
    }
    return std::nullopt;
  }

  // ---- the optimizer ----------------------------------------------------------------------------

  void clip(const Action& action) {
    const auto no_grad = backend().grad_mode(false);
    const Tensor norm = backend().state().slot(action.writes.front());
    check(schedule_->slot(action.writes.front()).kind == SlotKind::norm,
          "a norm in another's slot");
    const bool begins = !std::exchange(is_norm_begun_, true);
    if (action.group < 0) {
      if (begins) norm.zero_();
      // The mean over shards times their number is the sum.
      scale_.finish(norm, schedule_->shards, scalars_);
      return;
    }
    // This scales down what several ranks hold, since each of them would count it.
    const Bucket& bucket = schedule_->bucket_of(action);
    const double share = static_cast<double>(schedule_->shards_of(bucket)) / schedule_->shards;
    const Tensor gradient =
        backend().state().shard_in(action.group, action.bucket, action.reads.front());
    backend().do_on_stream(action, [this, gradient, share, norm, begins] {
      const auto no_grad_there = backend().grad_mode(false);
      if (begins) norm.zero_();
      scale_.add(gradient, share, norm);
    });
  }

  /// Copies to the host what its steps need to know about the gradients' norm. The copies' memory
  /// is kept from then on.
  void copy_scalars() {
    const auto no_grad = backend().grad_mode(false);
    const auto copy = [this](Tensor& to, const Tensor& from) {
      if (from.defined()) backend().copy_to_host(to, from);
    };
    copy(host_scalars_.divisor, scalars_.divisor);
    copy(host_scalars_.overflowed, scalars_.overflowed);
  }

  void count_step(Scalars& scalars) {
    if (std::exchange(is_counted_, true)) return;
    scalars.count = backend().state().step_count();
    scalars.count.add_(1);
    if (scalars.overflowed.defined()) scalars.count.sub_(scalars.overflowed);
  }

  void optimizer_step(const Action& action) {
    Scalars& scalars = schedule_->steps_on_host() ? host_scalars_ : scalars_;
    backend().do_on_stream(action, [this, &scalars, step = backend().step_of(action)]() mutable {
      const auto no_grad = backend().grad_mode(false);
      count_step(scalars);
      step(scalars);
    });
  }

  // ---- data -------------------------------------------------------------------------------------

  const models::ModelSpec& spec_;
  std::vector<Unit> units_;
  StepOptions options_;
  GradientScale<Ops> scale_;
  std::vector<std::optional<Type>> input_types_;  // by unit: what inputs are cast to
  std::vector<uint32_t> unit_labels_;
  std::vector<uint32_t> group_labels_;

  // These follow from the schedule.
  const Schedule* schedule_ = nullptr;
  bool trains_ = false;                        // the schedule has a backward
  std::vector<UnitPlan> plans_;                // by unit
  std::vector<ParameterPlace> places_;         // by parameter
  std::vector<std::vector<bool>> sums_apart_;  // by group and bucket: not in the reduce slot
  SlotLives slot_lives_;

  // These hold the state of one run.
  const BatchLoader* load_batch_ = nullptr;
  Scalars scalars_;
  Scalars host_scalars_;  // of steps on the host
  bool is_norm_begun_ = false;
  bool is_counted_ = false;                  // the step, by the optimizer's first call
  int next_ = 0;                             // the action to execute next
  int current_ = -1;                         // the one that began last
  std::vector<Gradient> gradients_;          // by parameter
  std::vector<Tensor> inputs_;               // by unit, from its forward to its backward
  std::vector<typename Ops::Edge> outputs_;  // where backward begins
  Tensor recomputed_;                        // the output of the last unit computed again
  Tensor carried_;  // forward: the last output; backward: the gradient of the next unit's output
  Segment segment_;
  Batch batch_;
  Tensor loss_;
  Tensor logits_;
};

}  // namespace shardlens::planner
