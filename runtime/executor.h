// Executes a schedule on one rank: one short function an action, in the order of the list.
//
// Order is the schedule's alone. The one place where autograd could have a say is inside a unit's
// backward, and there the gradient hook runs the schedule's next actions as soon as a segment's
// gradients are there (see [Note: backward in segments] in planner/schedule.h).
//
// One thread enqueues everything. An action's waits are made good twice: its stream waits for
// theirs (streams.h), and the host for a collective that its communicator does on the host.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <vector>

#include "models/model.h"
#include "planner/schedule.h"
#include "profiler/recorder.h"
#include "runtime/comm/communicator.h"
#include "runtime/rank_state.h"
#include "runtime/streams.h"

namespace shardlens::runtime {

class NullInspection;

struct Batch {
  at::Tensor images;  // [batch, channels, height, width] fp32
  at::Tensor labels;  // [batch] int64; both on the rank's device
};

struct Channels {
  Communicator* gather = nullptr;
  Communicator* reduce = nullptr;
};

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
};

class Executor {
 public:
  using LoadBatch = std::function<Batch()>;
  /// Told the id of each action before it runs.
  using Observer = std::function<void(int action)>;

  /// Everything referred to must outlive the executor.
  Executor(const models::ModelSpec& spec, RankState& state, Streams& streams, Channels channels,
           const AdamOptions& adam);

  /// Runs a training step or an evaluation pass. The schedule must be one that the state was made
  /// for, or the evaluation pass beside it. Throws CommunicationError where peers are lost.
  void run(const planner::Schedule& schedule, int64_t step, const LoadBatch& load_batch);

  /// Of the last run: mean loss of the batch (fp32 scalar), logits [batch, classes], labels.
  const at::Tensor& loss() const { return loss_; }
  const at::Tensor& logits() const { return logits_; }
  const at::Tensor& labels() const { return batch_.labels; }

  void observe(Observer observer) { observer_ = std::move(observer); }
  /// On a null device that checks; the inspection must outlive the executor.
  void inspect(NullInspection& inspection) { inspection_ = &inspection; }

 private:
  /// The part of a unit's backward that fills one bucket.
  struct Segment {
    int action = -1;
    int unit = -1;
    int group = -1;
    int bucket = -1;
    int slot = -1;
    int missing = 0;  // gradients still to come
  };

  /// What came of a parameter's gradient in this step.
  struct Gradient {
    bool stored = false;  // in its reduce slot; a further one is added
    bool early = false;   // came before its bucket's segment, waits in .grad
  };

  void install_hooks();
  void begin(const planner::Schedule& schedule, int64_t step, const LoadBatch& load_batch);

  void execute(int id);
  void dispatch(const planner::Action& action);
  void wait_for(const planner::Action& action);
  void finish(int id);
  void end_action(int id);
  void choose_recorder();
  uint32_t label_of(const planner::Action& action) const;
  void load_input();
  void cast_shard(const planner::Action& action);
  void all_gather(const planner::Action& action);
  void reshard(const planner::Action& action);
  void forward(const planner::Action& action);
  void compute_loss();
  void backward(const planner::Action& action);
  void reduce_scatter(const planner::Action& action);
  void all_reduce(const planner::Action& action);
  void optimizer_step(const planner::Action& action);

  void bind_weights(const planner::Action& action);
  std::vector<at::Tensor> unit_weights(int unit) const;
  void begin_segment(const planner::Action& action);
  void run_autograd(int unit);
  void on_gradient(int parameter);
  void store_gradient(int parameter);
  void continue_unit();
  std::optional<int> next_segment(int unit) const;
  Operation operation(const planner::Action& action) const;
  void issued(const planner::Action& action, Ticket ticket);
  Communicator& channel(planner::Channel channel) const;

  const models::ModelSpec& spec_;
  std::vector<models::Forward> units_;
  RankState& state_;
  Streams& streams_;
  Channels channels_;
  AdamOptions adam_;
  Observer observer_;
  NullInspection* inspection_ = nullptr;

  // While somebody records.
  profiler::Recorder* recorder_ = nullptr;
  std::vector<uint32_t> unit_labels_;
  std::vector<uint32_t> group_labels_;
  profiler::Scope* unit_scope_ = nullptr;  // of the unit that is in backward
  profiler::Space space_{};                // where the rank's tensors lie

  // One run.
  const planner::Schedule* schedule_ = nullptr;
  const LoadBatch* load_batch_ = nullptr;
  bool trains_ = false;  // the schedule has a backward
  int64_t step_ = 0;
  int next_ = 0;                                // the action to execute next
  std::vector<bool> awaited_;                   // by action: another stream waits for it
  std::vector<std::optional<Ticket>> tickets_;  // by action
  std::vector<Gradient> gradients_;             // by parameter
  std::vector<at::Tensor> inputs_;              // by unit, from its forward to its backward
  std::vector<at::Tensor> outputs_;
  at::Tensor
      carried_;  // forward: the last output; backward: the gradient of the next unit's output
  Segment segment_;
  std::exception_ptr failure_;  // thrown inside autograd
  Batch batch_;
  at::Tensor loss_;
  at::Tensor logits_;
};

}  // namespace shardlens::runtime
