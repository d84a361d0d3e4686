// The table of levers and what is read from --with; where levers acted; and the search for a
// largest value, against brute force.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "profiler/record/levers/lever_sites.h"
#include "profiler/record/levers/levers.h"
#include "profiler/record/search/advise.h"
#include "profiler/record/search/placeholders.h"
#include "profiler/record/search/solve.h"

namespace shardlens::profiler {

namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

void expect_refused(const std::string& levers, const std::string& why) {
  INFO(levers);
  CHECK_THROWS_MATCHES(parse_levers(levers), std::invalid_argument,
                       MessageMatches(ContainsSubstring(why)));
}

AccountEntry told(const std::string& what, const std::string& text) {
  return {.what = what, .text = text};
}

/// Solves for a program that takes `per_value` bytes for each unit, on a GPU of `capacity`.
Solution solve_linear(int64_t per_value, int64_t capacity, int64_t from, int64_t most) {
  SolveOptions options;
  options.name = "batch";
  options.from = from;
  options.most = most;
  return solve(options, [&](int64_t value) -> std::optional<VariantResult> {
    VariantResult result;
    const bool fits = per_value * value <= capacity;
    result.outcome = fits ? VariantOutcome::measured : VariantOutcome::out_of_memory;
    result.marks = {per_value * value};
    return result;
  });
}

}  // namespace

TEST_CASE("unknown levers, values and contradictions are refused in one line") {
  CHECK(levers_text(parse_levers("recompute,compile,bucket-size=5")) ==
        "recompute=full,compile,bucket-size=5");
  CHECK(levers_text(parse_levers("wrap=size:1000,gc-threshold=0.8")) ==
        "wrap=size:1000,gc-threshold=0.8");
  expect_refused("nope", "unknown lever; give one of");
  expect_refused("", "unknown lever");
  expect_refused("recompute=half", "give recompute=full|every:N|selective, where N is a whole number");
  expect_refused("recompute=every:0", "unknown value");
  expect_refused("recompute=every:x", "unknown value");
  expect_refused("bucket-size", "unknown value");
  expect_refused("gc-threshold=1.5", "a number F between 0 and 1");
  expect_refused("compile=yes", "has no values");
  expect_refused("gpu=abacus", "the name of a simulated GPU");
  expect_refused("gpu", "unknown value");
  expect_refused("recompute,recompute=every:2", "contradict each other");
  expect_refused("fsdp2,zero-redundancy", "contradict each other");
  expect_refused("param-dtype=bf16,model-dtype=bf16", "contradict each other");
}

TEST_CASE("the table of levers is complete, and the values to try are values") {
  std::set<std::string_view> names;
  for (const LeverInfo& lever : levers()) {
    INFO(lever.name);
    CHECK(names.insert(lever.name).second);
    for (const std::string_view text : {lever.does, lever.applies, lever.code, lever.costs}) {
      CHECK_FALSE(text.empty());
    }
    if (lever.tries.empty() || lever.tries == "yes") continue;
    std::string rest(lever.tries);
    std::ranges::replace(rest, '|', '\n');
    for (size_t at = 0; at < rest.size();) {
      const size_t end = std::min(rest.find('\n', at), rest.size());
      CHECK_NOTHROW(parse_levers(std::string(lever.name) + "=" + rest.substr(at, end - at)));
      at = end + 1;
    }
  }
}

TEST_CASE("a lever that acted nowhere is idle, unless the program failed before") {
  const std::vector<Lever> pulled = parse_levers("recompute");
  Accounts accounts;
  CHECK(idle_lever(pulled, accounts, true) == std::nullopt);
  REQUIRE(idle_lever(pulled, accounts, false));
  CHECK_THAT(*idle_lever(pulled, accounts, false),
             ContainsSubstring("recompute=full does not apply"));

  accounts.told.push_back(told("lever", R"({"lever": "recompute", "value": "every:2"})"));
  CHECK(idle_lever(pulled, accounts, false));
  accounts.told.push_back(
      told("lever", R"({"lever": "recompute", "now": null, "where": "a.py:3"})"));
  CHECK(idle_lever(pulled, accounts, false) == std::nullopt);
  CHECK(lever_sites(accounts).back().where == "a.py:3");

  accounts.told.push_back(told("lever_cannot", R"({"lever": "recompute", "why": "it is on"})"));
  CHECK(idle_lever(pulled, accounts, true) == "recompute=full does not apply: it is on");
}

TEST_CASE("what costs nothing comes before what communicates, computes and copies") {
  const auto cost = [](const std::string& text) { return cost_of(parse_levers(text)); };
  CHECK(cost("optimizer=fused") < cost("reshard-after-forward"));
  CHECK(cost("reshard-after-forward") < cost("recompute"));
  CHECK(cost("recompute,optimizer=fused") < cost("activations"));
  CHECK(cost("activations") < cost("param-dtype"));
  CHECK(cost("recompute") < cost("optimizer=8bit"));
}

TEST_CASE("placeholders take values wherever they are in a command") {
  const std::vector<std::string> command = {"python", "t.py",     "--b={batch}",
                                            "{seq}",  "{batch}{", "{}"};
  CHECK(placeholders_in(command) == std::vector<std::string>{"batch", "seq"});
  CHECK(with_values(command, {{"batch", 4}, {"seq", 512}}) ==
        std::vector<std::string>{"python", "t.py", "--b=4", "512", "4{", "{}"});
}

TEST_CASE("solve finds what brute force finds") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 300; ++i) {
    const auto per_value = std::uniform_int_distribution<int64_t>(1, 50)(random);
    const auto capacity = std::uniform_int_distribution<int64_t>(0, 2000)(random);
    const auto from = std::uniform_int_distribution<int64_t>(1, 20)(random);
    const auto most = from + std::uniform_int_distribution<int64_t>(0, 300)(random);
    std::optional<int64_t> largest;
    for (int64_t value = from; value <= most && per_value * value <= capacity; ++value) {
      largest = value;
    }
    const Solution solution = solve_linear(per_value, capacity, from, most);
    CHECK(solution.largest == largest);
    CHECK(solution.is_solved() == largest.has_value());
    CHECK(solution.runs.size() <= 24);
  }
}

TEST_CASE("solve says that a program ignores its number, or fails") {
  SolveOptions options;
  options.name = "batch";
  const Solution same = solve(options, [](int64_t) {
    VariantResult result;
    result.outcome = VariantOutcome::measured;
    result.marks = {7};
    return std::optional(result);
  });
  CHECK_FALSE(same.is_solved());
  CHECK_THAT(same.problem, ContainsSubstring("may ignore {batch}"));
  CHECK(same.runs.size() == 4);

  const Solution failing = solve(options, [](int64_t value) {
    VariantResult result;
    result.outcome = value < 3 ? VariantOutcome::measured : VariantOutcome::failed;
    result.marks = {value};
    result.why = "ValueError: too many";
    return std::optional(result);
  });
  CHECK(failing.problem == "with batch=4: ValueError: too many");
  CHECK(failing.largest == 2);
}

}  // namespace shardlens::profiler
