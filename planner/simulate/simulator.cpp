#include "planner/simulate/simulator.h"

#include <optional>
#include <utility>

#include "models/units.h"
#include "planner/simulate/meta/ops.h"

namespace shardlens::planner {

using meta::Tensor;

Simulator::Simulator(const models::ModelSpec& spec, const Config& config, SimulatedState& state,
                     const RankMemory& memory)
    : Interpreter(spec, models::make_units<meta::MetaOps>(spec), step_options(config), memory),
      spec_(spec),
      state_(state),
      memory_(memory),
      pinned_{.memory = &memory.pinned} {
  relabel();
  hook_leaves();
}

void Simulator::hook_leaves() {
  for (int parameter = 0; parameter < static_cast<int>(spec_.parameters.size()); ++parameter) {
    const auto& leaf = state_.weight(parameter).leaf();
    if (leaf) leaf->on_gradient = [this, parameter] { on_gradient(parameter); };
  }
  memory_.device.find_place = [this](const meta::Leaf& leaf) -> std::optional<Tensor> {
    const int parameter = state_.parameter_of(leaf);
    if (parameter < 0 || slot_for(parameter) < 0) return std::nullopt;
    const Tensor& weight = state_.weight(parameter);
    return Tensor::placed(memory_.device, weight.sizes(), weight.scalar_type());
  };
}

void Simulator::run(const Schedule& schedule, const BatchLoader& load_batch,
                    const RoundSkipper& leave_out) {
  const TimelineScope scope(memory_.timeline, Purpose{});
  Interpreter::run(schedule, load_batch, leave_out);
}

Purpose Simulator::enter(const Action& action, uint32_t label) {
  memory_.timeline.begin_action(current());
  return memory_.timeline.change({category_of(action.kind), label, current()});
}

void Simulator::run_backward(const MetaStepOps::Edge& output, const Tensor& gradient) {
  // Autograd wants the first gradient in the output's dtype.
  meta::run_backward(memory_.device, output.edge, gradient.to(output.type));
}

void Simulator::recategorise_gradient(int parameter) {
  const Tensor& came = state_.weight(parameter).leaf()->gradient;
  if (!came.storage()) return;
  memory_.timeline.recategorise(came.storage()->block(), profiler::Category::gradient);
}

void Simulator::store_gradient(int parameter, int, bool) {
  state_.weight(parameter).leaf()->gradient = {};
}

meta::MetaLossAndGradient Simulator::loss_and_gradient(Tensor logits, const Tensor&,
                                                       const Tensor& weight) const {
  return meta::loss_and_gradient(spec_, std::move(logits), weight);
}

void Simulator::copy_to_host(Tensor& to, const Tensor& from) {
  if (!to.defined()) to = Tensor::empty(pinned_, from.sizes(), from.scalar_type());
}

}  // namespace shardlens::planner
