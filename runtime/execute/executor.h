// Executes schedules on one rank: the backend of planner/step/interpreter.h for LibTorch's tensors.
// The functions that compute are in executor_compute.cpp, those that move and apply parameters and
// gradients in executor_state.cpp.
//
// An action that is done in several rounds has one event, recorded again in each. So a wait for an
// earlier round may become a wait for a later one, which has been enqueued by then as well.
//
// One thread enqueues everything. An action's waits are enforced twice: its stream waits for other
// streams (streams.h), and the host waits for a collective whose communicator works on the host.
// Actions that the schedule gives to the host are posted to a thread of their own (host_queue.h),
// which enforces their waits for the device.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>  // destroys what an Edge holds

#include <cstdint>
#include <exception>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/host_queue.h"
#include "models/model.h"
#include "planner/schedule/schedule.h"
#include "planner/step/interpreter.h"
#include "profiler/recorder/recorder.h"
#include "runtime/comm/channels.h"
#include "runtime/comm/scalar_type.h"
#include "runtime/execute/optimizer.h"
#include "runtime/execute/rank_state.h"
#include "runtime/execute/step_ops.h"
#include "runtime/execute/streams.h"

namespace shardlens::runtime {

class NullInspection;

struct ExecutorOptions : planner::StepOptions {
  planner::OptimizerOptions optimizer{};
  std::vector<models::Forward> units{};  // of a program's own model; empty: the family's
  models::Loss loss{};                   // likewise; empty: spec.loss
};

/// Returns the options that a configuration asks for.
ExecutorOptions executor_options(const planner::Config& config);

class Executor : public planner::Interpreter<Executor, AtenStepOps> {
 public:
  /// Receives the id of each action before the action runs.
  using Observer = std::function<void(int action)>;

  /// Keeps references to its arguments, which must outlive the executor.
  Executor(const models::ModelSpec& spec, RankState& state, Streams& streams, Channels channels,
           const ExecutorOptions& options);

  /// Runs a training step or an evaluation pass, for batches on the rank's device. The schedule
  /// must be one that the state was made for, or that schedule's evaluation pass, and must outlive
  /// the next run. Throws CommunicationError if peers are lost.
  void run(const planner::Schedule& schedule, int64_t step, const BatchLoader& load_batch);

  void observe(Observer observer) { observer_ = std::move(observer); }
  /// Turns on the checks of a null device. The inspection must outlive the executor.
  void inspect(NullInspection& inspection) { inspection_ = &inspection; }

 private:
  friend Interpreter;

  /// Identifies a collective in flight.
  struct IssuedCollective {
    int action = -1;
    Communicator* communicator = nullptr;
    Ticket ticket = 0;
  };

  // The interpreter calls these.
  RankState& state() { return state_; }
  bool begin_pass(bool is_new);
  uint32_t label(std::string_view name);
  profiler::Purpose enter(const planner::Action& action, uint32_t label);
  void leave(const planner::Action& action, const profiler::Purpose& before);
  void end_action(int id);
  void finish_action(int id);
  static at::AutoGradMode grad_mode(bool enabled) { return at::AutoGradMode(enabled); }
  void bind(const planner::Action& action);
  void run_backward(const torch::autograd::Edge& output, at::Tensor gradient);
  void recategorise_gradient(int parameter);
  void store_gradient(int parameter, int slot, bool adds);
  at::Tensor loss_of(const at::Tensor& logits, const at::Tensor& targets) const;
  models::LossAndGradient loss_and_gradient(at::Tensor logits, const at::Tensor& targets,
                                            const at::Tensor& weight) const;
  void do_on_stream(const planner::Action& action, HostQueue::Work work);
  void move(const planner::Action& action);
  void copy_to_host(at::Tensor& to, const at::Tensor& from);
  std::function<void(const StepScalars& scalars)> step_of(const planner::Action& action);

  void hook_weights();
  int index_of(int id) const { return schedule().repetition.index_of(id); }
  void wait_for(int id);
  void complete(int id);
  at::Tensor place_for(const at::Tensor& weight);
  void h2d(const planner::Action& action);
  void d2h(const planner::Action& action);
  void cast_shard(const planner::Action& action);
  void all_gather(const planner::Action& action);
  void reshard(const planner::Action& action);
  void reduce_scatter(const planner::Action& action);
  void all_reduce(const planner::Action& action);
  void accumulate(const planner::Action& action);
  Operation operation(const planner::Action& action) const;
  void add_issued(const planner::Action& action, Ticket ticket);

  const models::ModelSpec& spec_;
  RankState& state_;
  Streams& streams_;
  Channels channels_;
  planner::OptimizerOptions optimizer_;
  models::Loss own_loss_;
  Observer observer_;
  NullInspection* inspection_ = nullptr;
  profiler::Recorder* recorder_ = nullptr;  // while it is active
  profiler::Space space_{};                 // where the rank's tensors are

  // These hold the state of one run.
  profiler::Scope* scope_ = nullptr;
  int64_t step_ = 0;
  std::vector<bool> awaited_;             // by position in the list: another stream waits for it
  std::vector<IssuedCollective> issued_;  // in order of issue, until waited for
  std::exception_ptr failure_;            // thrown inside autograd
  HostQueue host_;                        // last: its work uses all members above
};

}  // namespace shardlens::runtime
