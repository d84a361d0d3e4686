#include "planner/schedule/backward_builder.h"
#include "planner/schedule/builders.h"
#include "planner/schedule/step_builder.h"

namespace shardlens::planner {
namespace {

Schedule build_evaluation(StepBuilder step) {
  for (const Visit& visit : step.visits()) step.add_visit(visit);
  return step.take();
}

}  // namespace

Schedule build_ddp(const models::ModelSpec& spec, const Strategy& strategy, Pass pass) {
  StepBuilder step(spec, strategy, pass);
  if (pass == Pass::evaluate) return build_evaluation(std::move(step));
  BackwardBuilder backward(step);
  for (const Visit& visit : step.visits()) {
    if (visit.kind == ActionKind::backward) {
      backward.add_unit(visit, -1);
    } else {
      step.add_visit(visit);
    }
  }
  backward.finish();
  return step.take();
}

}  // namespace shardlens::planner
