// Executes a schedule on one rank: one short function an action, in the order of the list. The
// functions that compute are in executor_compute.cpp, those that move and apply parameters and
// gradients in executor_state.cpp.
//
// The schedule alone sets the order. Autograd could change it in one place only, inside a unit's
// backward, and there the gradient hook runs the schedule's next actions as soon as a segment's
// gradients are there (see [Note: backward in segments] in planner/schedule.h).
//
// An action that is done in several rounds has one event, recorded anew in each. So a wait for an
// earlier round may become a wait for a later one, which has been enqueued by then as well.
//
// One thread enqueues everything. An action's waits are enforced twice: its stream waits for theirs
// (streams.h), and the host waits for a collective that its communicator does on the host. What the
// schedule gives to the host is posted to a thread that does it (host_queue.h), and that thread
// enforces the action's waits for the device.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/function.h>  // destroys what an Edge holds

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <vector>

#include "models/model.h"
#include "planner/schedule.h"
#include "profiler/recorder.h"
#include "runtime/comm/channels.h"
#include "runtime/gradient_scale.h"
#include "runtime/host_queue.h"
#include "runtime/optimizer.h"
#include "runtime/own_data.h"
#include "runtime/rank_state.h"
#include "runtime/streams.h"

namespace shardlens::runtime {

class NullInspection;

struct ExecutorOptions {
  planner::OptimizerOptions optimizer;
  GradientScaleOptions gradient_scale;
  std::optional<planner::DType> output_dtype;  // of the logits; empty: as computed
  /// The dtype of what units hand on, if some parameters have another dtype than the others.
  std::optional<planner::DType> compute_dtype;
  /// If true, a unit's floating-point input is cast to the dtype of its parameters, if they share
  /// one.
  bool cast_inputs = true;
  std::vector<models::Forward> units{};  // of a program's own model; empty: the family's
  models::Loss loss{};                   // likewise; empty: spec.loss
};

/// Returns the options that a configuration asks for.
ExecutorOptions executor_options(const planner::Config& config);

class Executor {
 public:
  /// Returns a batch, both tensors on the rank's device.
  using LoadBatch = std::function<Batch()>;
  /// Learns the id of each action before the action runs.
  using Observer = std::function<void(int action)>;

  /// Refers to its arguments, which must outlive the executor.
  Executor(const models::ModelSpec& spec, RankState& state, Streams& streams, Channels channels,
           ExecutorOptions options);

  /// Runs a training step or an evaluation pass, and asks for a batch once a microbatch. The
  /// schedule must be one that the state was made for, or the evaluation pass beside it. Throws
  /// CommunicationError if peers are lost.
  void run(const planner::Schedule& schedule, int64_t step, const LoadBatch& load_batch);

  /// These return values of the last run: the mean loss of its microbatches (fp32 scalar), after an
  /// evaluation the logits, and the targets of the last microbatch.
  const at::Tensor& loss() const { return loss_; }
  const at::Tensor& logits() const { return logits_; }
  const at::Tensor& targets() const { return batch_.targets; }

  /// Returns what clipping and loss scaling know of the last step.
  const GradientScale& gradient_scale() const { return gradient_scale_; }
  GradientScale& gradient_scale() { return gradient_scale_; }

  void observe(Observer observer) { observer_ = std::move(observer); }
  /// Turns on the checks of a null device. The inspection must outlive the executor.
  void inspect(NullInspection& inspection) { inspection_ = &inspection; }

 private:
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
    bool early = false;   // came before its bucket's segment, waits in .grad
    bool placed = false;  // a place was given out for it, once
  };

  /// Names a collective that is under way.
  struct Issued {
    int action = -1;
    Communicator* communicator = nullptr;
    Ticket ticket = 0;
  };

  void install_hooks();
  void begin(const planner::Schedule& schedule, int64_t step, const LoadBatch& load_batch);
  void begin_microbatch();

  void execute(int id);
  void dispatch(const planner::Action& action);
  int index_of(int id) const { return schedule_->repetition.index_of(id); }
  void wait_for(int id);
  void do_on_stream(const planner::Action& action, HostQueue::Work work);
  void complete(int id);
  void complete_all();
  void finish(int id);
  void end_action(int id);
  void choose_recorder();
  uint32_t label_of(const planner::Action& action) const;
  void load_input();
  void h2d(const planner::Action& action);
  void d2h(const planner::Action& action);
  void cast_shard(const planner::Action& action);
  void all_gather(const planner::Action& action);
  void reshard(const planner::Action& action);
  void forward(const planner::Action& action);
  void compute_loss();
  void recompute(const planner::Action& action);
  at::Tensor run_unit(int unit, const at::Tensor& input);
  std::optional<at::ScalarType> input_dtype(int unit) const;
  void backward(const planner::Action& action);
  void reduce_scatter(const planner::Action& action);
  void all_reduce(const planner::Action& action);
  void accumulate(const planner::Action& action);
  void count_step(StepScalars& scalars);
  void clip(const planner::Action& action);
  void optimizer_step(const planner::Action& action);

  void bind_weights(const planner::Action& action);
  std::vector<at::Tensor> unit_weights(int unit) const;
  void begin_segment(const planner::Action& action);
  void run_autograd(int unit);
  [[noreturn]] void refuse_unused(int unit) const;
  at::Tensor place_for(const at::Tensor& weight);
  void on_gradient(int parameter);
  void store_gradient(int parameter);
  void continue_unit();
  std::optional<int> next_segment(int unit) const;
  Operation operation(const planner::Action& action) const;
  void issued(const planner::Action& action, Ticket ticket);

  const models::ModelSpec& spec_;
  std::vector<models::Forward> units_;
  RankState& state_;
  Streams& streams_;
  Channels channels_;
  ExecutorOptions options_;
  GradientScale gradient_scale_;
  std::vector<std::optional<at::ScalarType>> input_dtypes_;  // by unit: what inputs are cast to
  Observer observer_;
  NullInspection* inspection_ = nullptr;

  // These are used while a recorder is active.
  profiler::Recorder* recorder_ = nullptr;
  std::vector<uint32_t> unit_labels_;
  std::vector<uint32_t> group_labels_;
  profiler::Scope* scope_ = nullptr;  // of the run
  profiler::Space space_{};           // where the rank's tensors lie

  // These hold the state of one run.
  const planner::Schedule* schedule_ = nullptr;
  const LoadBatch* load_batch_ = nullptr;
  bool trains_ = false;                   // the schedule has a backward
  std::vector<planner::UnitPlan> plans_;  // by unit
  StepScalars scalars_;
  StepScalars host_scalars_;                   // of steps on the host
  std::vector<std::vector<bool>> sums_apart_;  // by group and bucket: not in the reduce slot
  bool is_norm_begun_ = false;
  bool is_counted_ = false;  // the step, by the optimizer's first call
  int64_t step_ = 0;
  int next_ = 0;               // the action to execute next
  int current_ = -1;           // the one that began last
  std::vector<bool> awaited_;  // by place in the list: another stream waits for it
  planner::SlotLives slot_lives_;
  std::vector<Issued> issued_;                  // in this order, until they were waited for
  std::vector<Gradient> gradients_;             // by parameter
  std::vector<at::Tensor> inputs_;              // by unit, from its forward to its backward
  std::vector<torch::autograd::Edge> outputs_;  // where backward begins
  at::Tensor recomputed_;                       // the output of the last unit computed again
  at::Tensor
      carried_;  // forward: the last output; backward: the gradient of the next unit's output
  Segment segment_;
  std::exception_ptr failure_;  // thrown inside autograd
  Batch batch_;
  at::Tensor loss_;
  at::Tensor logits_;
  HostQueue host_;  // the last: its work uses all others
};

}  // namespace shardlens::runtime
