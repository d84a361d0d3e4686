// Compares the planner's verdict with the null device's own: LibTorch's allocator over a device of
// a given capacity. Around the memory that a plan needs, with and without retries, a run must end
// as the plan says: done, done with retries, or out of memory.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "planner/planner.h"
#include "tests/support/process.h"
#include "tests/support/random_vit.h"
#include "tests/support/strategies.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::tests;
using planner::Verdict;

namespace {

constexpr int64_t kPageBytes = int64_t{2} << 20;

Flags with_capacity(Flags words, int64_t bytes) {
  words.insert(words.end(), {"--capacity", fmt::format("{}", bytes)});
  return words;
}

planner::Plan plan_of(const Flags& words) {
  return planner::make_plan(planner::parse_arguments(words).config, {});
}

/// The end of a run with these flags.
Verdict outcome_of(const Flags& words) {
  const TemporaryFolder folder;
  Flags command = {SHARDLENS_TRAIN, "--anyway", "--storage", folder.file("runs"), "--name", "r"};
  command.insert(command.end(), words.begin(), words.end());
  const ProcessEnd ended = run(command);
  if (ended.exit_code != 0) {
    INFO(ended.err);
    REQUIRE(ended.err.find("ran out of memory") != std::string::npos);
    return Verdict::does_not_fit;
  }
  const auto result = nlohmann::json::parse(read_file(folder.file("runs/r/result.json")));
  const bool retried = result.at("memory").at("alloc_retries") > 0;
  return retried ? Verdict::fits_with_retries : Verdict::fits;
}

/// Models that take up to some hundreds of MB, so that pages of the device matter.
Flags random_run(std::mt19937_64& engine) {
  const std::vector<Flags> models = {
      {"--model", "vit-tutorial"}, {"--model", "vit-b16"}, {"--model", "transformer"}};
  const int world_size = 2 << random_between(engine, 0, 3);
  Flags words = {"--device",    "null:h200", "--data",  "synthetic",
                 "--steps",     "3",         "--world", std::to_string(world_size),
                 "--solo-rank", "0"};
  const Flags& model = models[engine() % models.size()];
  words.insert(words.end(), model.begin(), model.end());
  words.insert(words.end(), {"--batch", std::to_string(random_between(engine, 1, 24))});
  Flags strategy = random_strategy_flags(engine, world_size);
  while (!fits_model(strategy, model[1])) strategy = random_strategy_flags(engine, world_size);
  words.insert(words.end(), strategy.begin(), strategy.end());
  return words;
}

struct Score {
  int right = 0;
  int asked = 0;
  int under = 0;  // the plan promised more than there was
  std::string wrong;
};

void ask(Score& score, const Flags& words, int64_t capacity_bytes) {
  const Flags limited = with_capacity(words, capacity_bytes);
  const Verdict planned = plan_of(limited).verdict;
  const Verdict real = outcome_of(limited);
  ++score.asked;
  if (planned == real) {
    ++score.right;
    return;
  }
  if (planned < real) ++score.under;
  for (const std::string& word : limited) score.wrong += word + ' ';
  score.wrong += fmt::format(": planned {}, was {}\n", to_string(planned), to_string(real));
}

/// Around both needs by a page, and from 90 to 110 % of the larger one.
void sweep(Score& score, const Flags& words) {
  const planner::Plan plan = plan_of(words);
  for (const int64_t need : {plan.least_fast_bytes, plan.least_any_bytes}) {
    for (const int64_t change : {-kPageBytes, int64_t{0}, kPageBytes}) {
      ask(score, words, need + change);
    }
  }
  for (const double share : {0.9, 0.95, 1.05, 1.1}) {
    const auto bytes = static_cast<int64_t>(share * static_cast<double>(plan.least_fast_bytes));
    ask(score, words, bytes);
  }
}

void check_verdicts(int configurations) {
  const uint64_t seed = std::random_device{}();
  std::mt19937_64 engine(seed);
  Score score;
  for (int i = 0; i < configurations; ++i) sweep(score, random_run(engine));
  fmt::print("seed {}: {} of {} verdicts right, {} promised too much\n{}", seed, score.right,
             score.asked, score.under, score.wrong);
  INFO("seed " << seed << '\n' << score.wrong);
  CHECK(score.under == 0);
  CHECK(score.right * 100 >= score.asked * 99);
}

}  // namespace

TEST_CASE("a plan's verdict is what the null device says", "[null][prediction]") {
  check_verdicts(2);
}

TEST_CASE("plans of forty configurations are what the null device says",
          "[null][prediction][long]") {
  check_verdicts(40);
}
