// Recipes from a file, and what a matrix of them says and ends with.

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "profiler/record/record_verdict.h"
#include "profiler/record/search/matrix.h"
#include "profiler/record/search/solve.h"

namespace shardlens::profiler {

namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

std::vector<Recipe> recipes_in(const std::string& json) {
  return recipes_of(nlohmann::json::parse(json), "runs/all");
}

void expect_recipes_refused(const std::string& json, const std::string& why) {
  INFO(json);
  CHECK_THROWS_MATCHES(recipes_in(json), std::invalid_argument,
                       MessageMatches(ContainsSubstring(why)));
}

RecipeResult ended(RecipeState state, VariantOutcome outcome = VariantOutcome::measured) {
  RecipeResult result{.name = "a", .state = state};
  if (state == RecipeState::not_run) return result;
  result.run = VariantResult{};
  result.run->outcome = outcome;
  return result;
}

}  // namespace

TEST_CASE("a file of recipes gives each combination of its lists") {
  const std::vector<Recipe> recipes = recipes_in(R"({"world": 16, "steps": 3, "recipes": {
      "sft": {"command": "python sft.py --batch {batch} --lr {rate}", "batch": [8, 16],
              "rate": "1e-4", "device": ["null:h100", "null:l4"], "with": [null, "recompute"]},
      "pretrain": {"command": ["python", "pre train.py"], "world": 64, "device": "null:h200"}}})");
  REQUIRE(recipes.size() == 9);
  CHECK(recipes.front().name == "pretrain");
  CHECK(recipes.front().options.world_size == 64);
  CHECK(recipes.front().options.command.back() == "pre train.py");
  std::set<std::string> names;
  std::map<std::string, int> of_device;
  for (const Recipe& recipe : recipes) {
    names.insert(recipe.name);
    ++of_device[recipe.options.device_name()];
    CHECK(recipe.options.steps == 3);
    CHECK(recipe.options.out == "runs/all");
  }
  CHECK(names.size() == 9);
  CHECK(of_device ==
        std::map<std::string, int>{{"null:h100", 4}, {"null:h200", 1}, {"null:l4", 4}});
  const Recipe& last = recipes.back();
  CHECK(last.name == "sft,batch=16,device=null:l4,with=recompute");
  CHECK(last.options.world_size == 16);
  CHECK(last.options.levers.size() == 1);
  CHECK(last.options.command ==
        std::vector<std::string>{"python", "sft.py", "--batch", "16", "--lr", "1e-4"});
}

TEST_CASE("a recipe that cannot be run is refused by name") {
  expect_recipes_refused("{}", "it has no recipes");
  expect_recipes_refused(R"({"recipes": {}})", "it has no recipes");
  expect_recipes_refused(R"({"recipes": {"a": 7}})", "recipe a: give its command");
  expect_recipes_refused(R"({"recipes": {"a": {"device": "null:h100"}}})", "recipe a: command: ");
  expect_recipes_refused(R"({"recipes": {"a": {"command": "python 'b c'"}}})", "give a list");
  expect_recipes_refused(R"({"recipes": {"a": {"command": "python {n}"}}})", "recipe a: n: ");
  const auto with_key = [](const std::string& key) {
    return R"({"recipes": {"a": {"command": "python b.py", "device": "null:l4", )" + key + "}}}";
  };
  expect_recipes_refused(with_key(R"("world": [])"), "recipe a: world: the list is empty");
  expect_recipes_refused(with_key(R"("world": {"n": 2})"), "recipe a: world: give a word");
  expect_recipes_refused(with_key(R"("banana": 2)"), "recipe a: ");
  expect_recipes_refused(with_key(R"("with": "banana")"), "recipe a: ");
  expect_recipes_refused(with_key(R"("device": "cuda")"), "simulated GPU");
  expect_recipes_refused(with_key(R"("world": [2, 2])"), "another run has the same name");
}

TEST_CASE("a matrix ends with what its recipes say") {
  const MatrixOptions options;
  Matrix matrix{.recipes = {ended(RecipeState::same), ended(RecipeState::added)}};
  CHECK(exit_code_of(matrix) == 0);
  matrix.recipes.push_back(ended(RecipeState::failed, VariantOutcome::failed));
  CHECK(exit_code_of(matrix) == kNotRecorded);
  matrix.recipes.push_back(ended(RecipeState::no_longer_fits, VariantOutcome::out_of_memory));
  CHECK(exit_code_of(matrix) == 1);
  CHECK(exit_code_of({.recipes = {ended(RecipeState::not_run)}}) == kNotRecorded);
  CHECK(exit_code_of({.recipes = {ended(RecipeState::not_compared)}}) == kNotRecorded);
  CHECK_THAT(matrix_text(options, matrix),
             ContainsSubstring("4 recipes: 1 no longer fits, 1 failed"));
  matrix.recipes[2].why = "KeyError: 'a|b'";
  matrix.gone = {"old"};
  const std::string comment = matrix_markdown(options, matrix);
  CHECK_THAT(comment, ContainsSubstring("KeyError: 'a\\|b'"));
  CHECK_THAT(comment, ContainsSubstring("| 1 recipe | as before |"));
  CHECK_THAT(comment, ContainsSubstring("| old | gone from the file |"));
  const auto json = nlohmann::json::parse(matrix_json(options, matrix));
  CHECK(json.at("recipes").size() == 4);
  CHECK(json.at("recipes").at(2).at("state") == "failed");
}

TEST_CASE("a step takes longer only if the host's noise cannot explain it", "[matrix]") {
  const auto predicted = [](double gpu_ms, double host_ms) {
    // The GPU waits for the host for as long as the latter takes more.
    const auto seconds = [=](double factor) { return std::max(gpu_ms, factor * host_ms) * 1e-3; };
    return PredictedTime{.seconds = seconds(1),
                         .text = fmt::format("{} ms", seconds(1) * 1e3),
                         .basis = "cold",
                         .fast_host_seconds = seconds(1 - kHostNoise),
                         .slow_host_seconds = seconds(1 + kHostNoise),
                         .parts = {{"matrix products", gpu_ms * 1e-3}}};
  };
  const auto change = [&](const PredictedTime& before, const PredictedTime& after) {
    return *time_change(before, after);
  };
  const PredictedTime base = predicted(100, 50);
  CHECK(change(base, predicted(107, 50)).is_slower_than(5));
  CHECK_FALSE(change(base, predicted(104, 50)).is_slower_than(5));
  CHECK(doubts_of_change(base, predicted(107, 50), 5).empty());
  // Both are bound by their host.
  const PredictedTime bound = predicted(10, 50);
  CHECK(change(bound, predicted(10, 60)).percent > 19);
  CHECK_FALSE(change(bound, predicted(10, 60)).is_slower_than(5));
  const auto doubts = doubts_of_change(bound, predicted(10, 60), 5);
  REQUIRE(doubts.size() == 1);
  CHECK_THAT(doubts.front(), ContainsSubstring("+20.0 % is not counted"));
  CHECK(change(bound, predicted(10, 200)).is_slower_than(5));
  const PredictedTime unknown{.why = "it has no trace of work"};
  CHECK_FALSE(time_change(unknown, base));
  CHECK_FALSE(time_change(std::nullopt, base));
  CHECK_THAT(doubts_of_change(unknown, base, 5).front(), ContainsSubstring("no trace of work"));
  CHECK(doubts_of_change(std::nullopt, base, 5).empty());

  RecipeResult slower = ended(RecipeState::slower);
  slower.run->time = predicted(107, 50);
  slower.base_time = base;
  const Matrix matrix{.recipes = {ended(RecipeState::same), slower}};
  CHECK(exit_code_of(matrix) == 1);
  const std::string text = matrix_text({.baseline = "memory"}, matrix);
  CHECK_THAT(text, ContainsSubstring("2 recipes: 1 takes longer, 1 as before"));
  CHECK_THAT(text, ContainsSubstring("107 ms    +7.00 %"));
  CHECK_THAT(text, ContainsSubstring("takes longer in a: +7 ms matrix products"));
  const auto json = nlohmann::json::parse(matrix_json({.predicts_times = true}, matrix));
  CHECK(json.at("time_limit_percent") == 5);
  CHECK(json.at("recipes").at(1).at("state") == "slower");
  CHECK(json.at("recipes").at(1).at("base_time").at("seconds") == 0.1);
  CHECK(json.at("recipes").at(0).at("time").is_null());
  CHECK_THAT(matrix_markdown({}, matrix), ContainsSubstring(" 100 ms -> 107 ms | +7.00 % |"));
}

TEST_CASE("a matrix says each doubt once, with the recipes that it is about") {
  Matrix matrix{.recipes = {ended(RecipeState::same), ended(RecipeState::same),
                            ended(RecipeState::grew), ended(RecipeState::not_run)}};
  for (size_t i = 0; i < 4; ++i)
    matrix.recipes[i].name = std::string(1, static_cast<char>('a' + i));
  const std::string fails = "in 3 of 40 orders of the driver's addresses it does not fit";
  matrix.recipes[0].doubts = {fails, "only one step was recorded"};
  matrix.recipes[2].doubts = {fails};
  const std::string text = matrix_text({}, matrix);
  CHECK_THAT(text, ContainsSubstring("  in doubt: " + fails + " (a; c)\n"));
  CHECK_THAT(text, ContainsSubstring("  in doubt: only one step was recorded (a)\n"));
  CHECK_THAT(matrix_markdown({}, matrix), ContainsSubstring("- in doubt: " + fails + " (a; c)\n"));
  const auto json = nlohmann::json::parse(matrix_json({}, matrix));
  CHECK(json.at("recipes").at(0).at("doubts").size() == 2);
  CHECK(json.at("recipes").at(1).at("doubts").empty());
  CHECK(json.at("recipes").at(1).at("bands").is_null());
}

TEST_CASE("the largest value that fits is in doubt where some orders of addresses do not fit") {
  const VariantResult measured{.outcome = VariantOutcome::measured, .reserved_bytes = 1 << 20};
  Solution solution{.runs = {{.value = 4, .result = measured},
                             {.value = 5, .result = {.outcome = VariantOutcome::out_of_memory}}},
                    .largest = 4,
                    .too_large = 5};
  const SolveOptions options{.name = "batch"};
  CHECK(solution_text(options, solution).find("in doubt") == std::string::npos);
  solution.runs[0].result.bands = exact_bands(1, 2);
  solution.runs[0].result.doubts = {"in 2 of 40 orders it does not fit"};
  solution.runs[1].result.doubts = {"in 1 of 40 orders it fits"};
  CHECK_THAT(solution_text(options, solution),
             ContainsSubstring("  in doubt: in 2 of 40 orders it does not fit (batch=4)\n"
                               "  in doubt: in 1 of 40 orders it fits (batch=5)\n\nnext\n"));
  const auto json = nlohmann::json::parse(solution_json(options, solution));
  CHECK(json.at("runs").at(0).at("bands").at("reserved").at("most_bytes") == 2);
  CHECK(json.at("runs").at(1).at("doubts").at(0) == "in 1 of 40 orders it fits");
  const std::vector<SweptRun> swept = {
      {.values = {{"batch", 4}}, .result = solution.runs[0].result},
      {.values = {{"batch", 3}}, .result = solution.runs[0].result}};
  CHECK_THAT(sweep_text({}, swept),
             ContainsSubstring("  in doubt: in 2 of 40 orders it does not fit\n"));
}

TEST_CASE("the parts of a sweep are all its combinations, each in one part") {
  const auto options_of = [](const std::string& part) {
    std::vector<std::string> words = {"--device", "null:l4"};
    if (!part.empty()) words.insert(words.end(), {"--part", part});
    for (const char* word : {"--values", "a=1,2,3", "--values", "b=5,6", "--", "run", "{a}", "{b}"})
      words.push_back(word);
    return parse_sweep_options(words);
  };
  const auto whole = combinations_in_part(options_of(""));
  CHECK(whole.size() == 6);
  for (size_t parts = 1; parts <= 6; ++parts) {
    std::vector<std::vector<PlacedValue>> all(whole.size());
    for (size_t part = 0; part < parts; ++part) {
      const auto some = combinations_in_part(options_of(fmt::format("{}/{}", part + 1, parts)));
      for (size_t i = 0; i < some.size(); ++i) all.at(part + i * parts) = some[i];
    }
    CHECK(all == whole);
  }
  for (const char* wrong : {"0/2", "3/2", "1", "/2", "1/", "one/2", "1/2x", "-1/2", "1/2/3"}) {
    CHECK_THROWS_MATCHES(options_of(wrong), std::invalid_argument,
                         MessageMatches(ContainsSubstring("give a part from 1")));
  }
  CHECK_THROWS_MATCHES(options_of("7/7"), std::invalid_argument,
                       MessageMatches(ContainsSubstring("there are only 6 combinations")));
}

TEST_CASE("a part of a matrix that has no recipe is refused before anything runs") {
  const auto recipes = recipes_in(R"({"device": "null:l4", "recipes": {
      "sft": {"command": "true {batch}", "batch": [8, 16]}}})");
  const MatrixOptions options = parse_matrix_options({"r.yaml", "--part", "3/4"});
  CHECK(options.part.number == 3);
  CHECK(options.part.count == 4);
  CHECK_THROWS_MATCHES(run_matrix(options, recipes, {}, {}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("there are only 2 recipes")));
  CHECK_THROWS_AS(parse_matrix_options({"r.yaml", "--part", "5/4"}), std::invalid_argument);
  CHECK(parse_matrix_options({"r.yaml", "--fail-slower", "3%"}).predicts_times);
  CHECK_THROWS_AS(parse_matrix_options({"r.yaml", "--fail-slower", "fast"}), std::invalid_argument);
}

}  // namespace shardlens::profiler
