// Runs a schedule without values: the counterpart of runtime/executor.h. Each action is one short
// function, called in the order of the list; the units are the code that the runtime runs
// (models/units.h), on tensors that only count their memory (planner/meta). The result is a
// timeline with every allocation that the runtime would make, in its order.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "models/spec.h"
#include "models/units.h"
#include "planner/meta/autograd.h"
#include "planner/meta/ops.h"
#include "planner/schedule.h"
#include "planner/simulated_state.h"
#include "planner/strategy.h"

namespace shardlens::planner {

struct SimulatedBatch {
  meta::Tensor input;
  meta::Tensor targets;
};

/// The state and memory of clipping and loss scaling: the counterpart of runtime/gradient_scale.h.
class SimulatedScale {
 public:
  SimulatedScale(const Config& config, const RankMemory& memory);

  /// Returns the scalar that multiplies the loss before its backward; undefined: 1.
  meta::Tensor loss_gradient(int microbatches) const;
  void add(int64_t numel, DType dtype) const;
  void finish();
  void begin_step();

  bool overflows() const { return overflowed_.defined(); }

 private:
  bool scales() const { return scale_.defined(); }
  meta::Tensor scalar() const;
  meta::Tensor scalar_with_number() const;

  double clip_norm_;
  meta::Context& device_;
  meta::Tensor scale_;
  meta::Tensor steps_without_overflow_;
  meta::Tensor norm_;
  meta::Tensor divisor_;
  meta::Tensor overflowed_;
};

/// Runs schedules without values. Borrows all that its constructor is given.
class Simulator {
 public:
  using LoadBatch = std::function<SimulatedBatch()>;
  /// A function that is asked where a round of the schedule's repetition begins; `left` counts the
  /// rounds to come, this one included. Returns how many of them are left out.
  using LeaveOut = std::function<int64_t(int64_t left)>;

  Simulator(const models::ModelSpec& spec, const Config& config, SimulatedState& state,
            const RankMemory& memory);

  /// Runs a training step or an evaluation pass.
  void run(const Schedule& schedule, const LoadBatch& load_batch, const LeaveOut& leave_out);

  const meta::Tensor& loss() const { return loss_; }
  const meta::Tensor& logits() const { return logits_; }
  const meta::Tensor& targets() const { return batch_.targets; }

 private:
  /// The part of a unit's backward that fills one bucket.
  struct Segment {
    int action = -1;
    int unit = -1;
    int group = -1;
    int bucket = -1;
    int missing = 0;  // gradients still to come
  };
  struct Output {
    meta::Edge edge;
    meta::Type type{};
  };
  /// The state of a parameter's gradient in the current microbatch.
  struct Gradient {
    bool stored = false;
    bool early = false;
    bool placed = false;
  };

  void install_hooks();
  void begin(const Schedule& schedule);
  void begin_microbatch();
  void leave_out_rounds(const LeaveOut& leave_out);
  void execute(int id);
  void dispatch(const Action& action);
  void finish(int id);
  uint32_t label_of(const Action& action) const;
  void load_input();
  meta::Tensor run_unit(int unit, const meta::Tensor& input);
  std::optional<meta::Type> input_type(int unit) const;
  void forward(const Action& action);
  void recompute(const Action& action);
  void compute_loss();
  void backward(const Action& action);
  void begin_segment(const Action& action);
  void run_autograd(int unit);
  std::optional<meta::Tensor> place_for(const meta::Leaf& leaf);
  void on_gradient(int parameter);
  void store_gradient(int parameter);
  void continue_unit();
  std::optional<int> next_segment(int unit) const;
  void copy_scalars(const Action& action);
  void clip(const Action& action);
  void optimizer_step(const Action& action);

  const models::ModelSpec& spec_;
  SimulatedState& state_;
  RankMemory memory_;
  meta::Context& device_;
  std::vector<models::UnitCode<meta::MetaOps>> units_;
  std::optional<DType> output_dtype_;
  std::optional<DType> compute_dtype_;
  bool cast_inputs_;
  SimulatedScale scale_;
  std::vector<std::optional<meta::Type>> input_types_;  // by unit
  std::vector<uint32_t> unit_labels_;
  std::vector<uint32_t> group_labels_;
  std::shared_ptr<meta::Storage> host_divisor_;
  std::shared_ptr<meta::Storage> host_overflowed_;

  // State of the current run.
  const Schedule* schedule_ = nullptr;
  const LoadBatch* load_batch_ = nullptr;
  std::vector<UnitPlan> plans_;
  std::vector<std::vector<bool>> sums_apart_;
  SlotLives slot_lives_;
  bool trains_ = false;
  bool is_counted_ = false;
  int next_ = 0;
  int current_ = -1;  // the action that began last
  std::vector<Gradient> gradients_;
  std::vector<meta::Tensor> inputs_;
  std::vector<Output> outputs_;  // where backward begins
  meta::Tensor recomputed_;
  meta::Tensor carried_;
  Segment segment_;
  SimulatedBatch batch_;
  meta::Tensor loss_;
  meta::Tensor logits_;
};

}  // namespace shardlens::planner
