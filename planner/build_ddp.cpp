#include "planner/backward_builder.h"
#include "planner/builders.h"
#include "planner/step_builder.h"

namespace shardlens::planner {

Schedule build_ddp(const models::ModelSpec& spec, const Strategy& strategy, Pass pass) {
  StepBuilder step(spec, strategy);
  step.add_load_input();
  for (int unit = 0; unit < step.unit_count(); ++unit) step.add_forward(unit, {});
  step.add_loss();
  if (pass == Pass::train) {
    BackwardBuilder backward(step);
    for (int unit = step.unit_count() - 1; unit >= 0; --unit) backward.add_unit(unit, {});
    backward.finish();
  }
  return step.take();
}

}  // namespace shardlens::planner
