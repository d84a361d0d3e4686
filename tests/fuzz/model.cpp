// Reads model files of --model: a family with its sizes, or a config.json of Hugging Face.

#include "models/spec.h"
#include "planner/schedule/schedule.h"
#include "tests/fuzz/harness.h"

namespace shardlens::fuzz {

void model(std::string_view input) {
  const std::string path = write_parts({{"model.json", std::string(input)}}, empty_folder());
  models::ModelSpec spec;
  if (!answers([&] { spec = models::find_spec(path); })) return;
  expect(spec.numel() > 0, "a model has no parameters");
  expect(!spec.units.empty(), "a model computes nothing");
  answers([&] { models::notes_on(path); });
  constexpr size_t kMostUnits = 50;  // thousands of layers are valid, but slow
  if (spec.units.size() > kMostUnits) return;
  answers([&] {
    planner::validate(planner::build_schedule(spec, {.world_size = 2}, planner::Pass::train));
  });
}

}  // namespace shardlens::fuzz
