// Runs every strategy on the null device, as a user starts it, with the device's checks on.
#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>

#include "tests/support/process.h"
#include "tests/support/sample.h"
#include "tests/support/strategies.h"

using namespace shardlens::tests;

namespace {

struct Model {
  std::string name;
  std::vector<std::string> flags;
};

void require_runs(const Model& model, std::vector<std::string> flags, int world_size) {
  const TemporaryFolder folder;
  const bool is_single = std::count(flags.begin(), flags.end(), "single") > 0;
  std::vector<std::string> words = {"/usr/bin/env",
                                    "SHARDLENS_NULL_CHECK=1",
                                    SHARDLENS_TRAIN,
                                    "--device",
                                    "null:h200",
                                    "--data",
                                    "synthetic",
                                    "--storage",
                                    folder.file("runs"),
                                    "--name",
                                    "r",
                                    "--steps",
                                    "3",
                                    "--model",
                                    model.name};
  if (!is_single) {
    flags.insert(flags.end(), {"--world", std::to_string(world_size), "--solo-rank", "1"});
  }
  words.insert(words.end(), model.flags.begin(), model.flags.end());
  words.insert(words.end(), flags.begin(), flags.end());
  const ProcessEnd ended = run(words);
  INFO(ended.out << ended.err);
  REQUIRE(ended.exit_code == 0);
  const auto result = nlohmann::json::parse(read_file(folder.file("runs/r/result.json")));
  CHECK(result.at("steps") == 3);
}

/// Runs every strategy that fits the model, or one in `strategies_per_sample` of them.
void require_all_run(const Model& model, int world_size, int64_t strategies_per_sample = 1) {
  for (const auto& flags : fitting_strategy_flags(world_size, model.name, strategies_per_sample)) {
    std::string name = model.name;
    for (const std::string& flag : flags) name += " " + flag;
    INFO(name);
    require_runs(model, flags, world_size);
  }
}

}  // namespace

TEST_CASE("a sample of the strategies pass the null device's checks", "[null][strategies]") {
  require_all_run({"vit-tutorial", {"--batch", "4"}}, 8, 3 * cases_per_sample());
}

TEST_CASE("every strategy passes the null device's checks with every model",
          "[null][strategies][long]") {
  require_all_run({"vit-tutorial", {"--batch", "4"}}, 8);
  require_all_run({"vit-b16", {"--batch", "2"}}, 8);
  require_all_run({"vit-l16", {"--batch", "2"}}, 8);
  require_all_run({"transformer", {"--batch", "1"}}, 8);
  require_all_run({"llama-1b", {"--batch", "1", "--seq", "512"}}, 16);
}

TEST_CASE("22 billion parameters over 512 ranks need little host memory", "[null][strategies]") {
  require_runs({"vit-22b", {"--batch", "1", "--param-dtype", "bf16"}}, {}, 512);
  rusage children{};
  REQUIRE(::getrusage(RUSAGE_CHILDREN, &children) == 0);
  CHECK(children.ru_maxrss < (1 << 20));  // in KiB, of the largest process
}
