// Runs schedules without values: the backend of planner/step/interpreter.h for tensors that only
// count their memory (planner/simulate/meta). The result is a timeline with every allocation that
// the runtime's backend (runtime/execute/executor.h) would make, in its order.
#pragma once

#include <cstdint>
#include <string_view>

#include "models/spec.h"
#include "planner/schedule/schedule.h"
#include "planner/simulate/meta/autograd.h"
#include "planner/simulate/meta/losses.h"
#include "planner/simulate/meta/operators.h"
#include "planner/simulate/meta/reductions.h"
#include "planner/simulate/simulated_state.h"
#include "planner/simulate/timeline.h"
#include "planner/step/interpreter.h"

namespace shardlens::planner {

/// The operations of a step on the planner's tensors.
struct MetaStepOps {
  using Tensor = meta::Tensor;
  struct Batch {
    Tensor input;
    Tensor targets;
  };
  struct Edge {
    meta::Edge edge;
    meta::Type type{};  // of the output
  };
  using Device = RankMemory;

  static constexpr meta::Type kInt64 = meta::Type::int64;
  static meta::Type type_of(DType dtype) { return meta::type_of(dtype); }
  static Edge edge(const Tensor& output) { return {output.edge(), output.scalar_type()}; }
  static Tensor gradient(const Tensor& input) {
    return input.leaf() ? input.leaf()->gradient : Tensor();
  }

  static Tensor range(const Tensor& like, int64_t begin, int64_t end, int64_t step) {
    return meta::pointwise(like.context(), {(end - begin + step - 1) / step}, kInt64);
  }
  static Tensor to(meta::Context& device, const Tensor& tensor) {
    const bool lies_there = device.memory == tensor.context().memory;
    return lies_there ? tensor : meta::pointwise(device, tensor.sizes(), tensor.scalar_type());
  }

  static TimelineScope state_scope(const Device& device, std::string_view label) {
    return {device.timeline, profiler::Category::optimizer_state, label};
  }
  static Tensor full(const Device& device, double) {
    return meta::pointwise(device.device, {}, meta::Type::fp32);
  }
  static Tensor zero_count(const Device& device) {
    return meta::pointwise(device.device, {}, meta::Type::int32);
  }
  static Tensor vector_norm(const Tensor& gradient) { return meta::vector_norm(gradient); }
  static void update_scale(const Tensor&, const Tensor&, const Tensor&, double, double, int64_t) {}
};

/// Borrows all arguments of its constructor.
class Simulator : public Interpreter<Simulator, MetaStepOps> {
 public:
  Simulator(const models::ModelSpec& spec, const Config& config, SimulatedState& state,
            const RankMemory& memory);

  void run(const Schedule& schedule, const BatchLoader& load_batch,
           const RoundSkipper& leave_out = none_left_out);

 private:
  friend Interpreter;

  // The interpreter calls these. Copies and collectives, and what the host does beside a device,
  // take no memory of their own, so they do nothing.
  SimulatedState& state() { return state_; }
  bool begin_pass(bool is_new) { return is_new; }
  uint32_t label(std::string_view name) { return memory_.timeline.label(name); }
  Purpose enter(const Action& action, uint32_t label);
  void leave(const Action&, const Purpose& before) { memory_.timeline.change(before); }
  void end_action(int id) { memory_.timeline.end_action(id); }
  void finish_action(int) {}
  meta::GradMode grad_mode(bool enabled) { return {memory_.device, enabled}; }
  void bind(const Action&) {}
  void run_backward(const MetaStepOps::Edge& output, const Tensor& gradient);
  void recategorise_gradient(int parameter);
  void store_gradient(int parameter, int slot, bool adds);
  Tensor loss_of(const Tensor& logits, const Tensor&) const { return meta::loss(spec_, logits); }
  meta::MetaLossAndGradient loss_and_gradient(Tensor logits, const Tensor&,
                                              const Tensor& weight) const;
  template <class Work>
  void do_on_stream(const Action& action, Work&& work) const {
    if (action.stream != Stream::host || !memory_.has_device()) work();
  }
  void move(const Action&) {}
  void copy_to_host(Tensor& to, const Tensor& from);
  auto step_of(const Action&) const {
    return [](const auto&) {};
  }

  void hook_leaves();

  const models::ModelSpec& spec_;
  SimulatedState& state_;
  RankMemory memory_;
  meta::Context pinned_;
};

}  // namespace shardlens::planner
