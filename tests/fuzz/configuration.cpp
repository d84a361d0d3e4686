// Reads files of --config: ours, DeepSpeed's JSON, accelerate's YAML, torchtitan's TOML. The name
// of the part decides which; a file without a name is JSON.

#include <algorithm>

#include "planner/config/arguments.h"
#include "planner/config/checkpointing.h"
#include "planner/config/options.h"
#include "planner/config/recording.h"
#include "planner/config/strategy.h"
#include "tests/fuzz/harness.h"

namespace shardlens::fuzz {

void configuration(std::string_view input) {
  const std::string path = write_parts(parts_of(input, "config.json"), empty_folder());
  planner::Config config;
  if (!answers([&] { config = planner::parse_arguments({"--config", path}).config; })) return;
  planner::Config again;
  planner::read_json(again, planner::to_json(config), "again");
  expect(planner::to_json(again) == planner::to_json(config),
         "a configuration is another when it was written and read");
  answers([&] { planner::strategy_of(config); });
  answers([&] { planner::device_of(config); });
  answers([&] { planner::checkpointing_of(config); });
  answers([&] { planner::recording_of(config); });
}

}  // namespace shardlens::fuzz
