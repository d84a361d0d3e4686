// The table of levers and what is read from --with; where levers acted; and the search for a
// largest value, against brute force.

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>
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
#include "tests/support/temporary_folder.h"

namespace shardlens::profiler {

namespace {

using Catch::Approx;
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

constexpr int kNothingFits = 1 << 30;

constexpr double kWhole = 1e6;

/// A program that takes kWhole bytes, and with each lever a certain part of what it takes without.
struct ModelProgram {
  std::vector<std::pair<Lever, double>> shares;
  std::vector<double> times = {};  // by lever: what a step takes, as a part of what it took before

  std::vector<Lever> levers() const {
    std::vector<Lever> all;
    for (const auto& [lever, share] : shares) all.push_back(lever);
    return all;
  }

  int64_t bytes_with(const std::vector<Lever>& levers) const {
    double bytes = kWhole;
    for (const auto& [lever, share] : shares) {
      if (std::ranges::find(levers, lever) != levers.end()) bytes *= share;
    }
    return static_cast<int64_t>(bytes);
  }

  /// The seconds of a step, which is one of a second without levers; 0 if there are no times.
  double seconds_with(const std::vector<Lever>& levers) const {
    double seconds = times.empty() ? 0 : 1;
    for (size_t i = 0; i < times.size(); ++i) {
      if (std::ranges::find(levers, shares[i].first) != levers.end()) seconds *= times[i];
    }
    return seconds;
  }

  /// Runs as on an allocator that reserves a tenth more than is used where there is room.
  VariantResult run(const RecordOptions& options) const {
    VariantResult result{.options = options, .outcome = VariantOutcome::measured};
    result.allocated_bytes = bytes_with(options.levers);
    const int64_t capacity = options.device.capacity_bytes;
    if (result.allocated_bytes > capacity) {
      result.outcome = VariantOutcome::out_of_memory;
      return result;
    }
    const int64_t wanted = result.allocated_bytes / 10 * 11;
    result.has_retries = wanted > capacity;
    result.reserved_bytes = std::min(wanted, capacity);
    result.time = PredictedTime{.seconds = seconds_with(options.levers)};
    for (const auto& [lever, share] : shares) {
      result.accounts.told.push_back(told("lever", R"({"lever": ")" + lever.name + R"("})"));
    }
    return result;
  }
};

ModelProgram random_program(std::mt19937& random) {
  ModelProgram program;
  for (const char* text :
       {"optimizer=fused", "expandable-segments", "empty-cache", "reshard-after-forward=true",
        "recompute=every:2", "recompute=full", "activations=host", "autocast=bf16"}) {
    const double share = std::uniform_real_distribution<double>(0.5, 1.05)(random);
    program.shares.emplace_back(parse_levers(text).front(), share);
  }
  return program;
}

/// Returns the sets of up to three levers that do not contradict each other.
std::vector<std::vector<Lever>> sets_of(const std::vector<Lever>& all) {
  std::vector<std::vector<Lever>> sets;
  for (unsigned bits = 0; bits < 1U << all.size(); ++bits) {
    std::vector<Lever> set;
    for (size_t i = 0; i < all.size(); ++i) {
      if ((bits >> i & 1U) != 0) set.push_back(all[i]);
    }
    const bool agrees = std::ranges::all_of(set, [&](const Lever& one) {
      return std::ranges::count_if(set, [&](auto& other) { return contradict(one, other); }) == 1;
    });
    if (agrees && set.size() <= 3) sets.push_back(set);
  }
  return sets;
}

Findings advise_on(const ModelProgram& program, const AdviseOptions& options) {
  const auto run = [&](const std::vector<RecordOptions>& all, const std::vector<std::string>&) {
    std::vector<VariantResult> results;
    for (const RecordOptions& one : all) results.push_back(program.run(one));
    return results;
  };
  return advise(options, run, [] { return 2; });
}

/// Returns the least cost of the sets of up to three levers that fit.
int cheapest_of(const ModelProgram& program, int64_t fit_bytes) {
  int cheapest = kNothingFits;
  for (const std::vector<Lever>& set : sets_of(program.levers())) {
    RecordOptions options;
    options.levers = set;
    options.device.capacity_bytes = fit_bytes;
    const VariantResult result = program.run(options);
    if (result.fits(fit_bytes)) cheapest = std::min(cheapest, cost_of(result));
  }
  return cheapest;
}

}  // namespace

TEST_CASE("unknown levers, values and contradictions are refused in one line") {
  CHECK(levers_text(parse_levers("recompute,compile,bucket-size=5")) ==
        "recompute=full,compile,bucket-size=5");
  CHECK(levers_text(parse_levers("wrap=size:1000,gc-threshold=0.8")) ==
        "wrap=size:1000,gc-threshold=0.8");
  expect_refused("nope", "unknown lever; give one of");
  expect_refused("", "unknown lever");
  expect_refused("recompute=half",
                 "give recompute=full|every:N|selective, where N is a whole number");
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

TEST_CASE("levers and searches are refused on real GPUs, and a lever that contradicts a flag is") {
  const auto expect_no_record = [](std::vector<std::string> arguments, const std::string& why) {
    arguments.insert(arguments.end(), {"--", "python", "train.py"});
    CHECK_THROWS_MATCHES(parse_record_options(arguments), std::invalid_argument,
                         MessageMatches(ContainsSubstring(why)));
  };
  expect_no_record({"--device", "cuda", "--with", "recompute"}, "only applies to a simulated GPU");
  expect_no_record({"--with", "recompute"}, "only applies to a simulated GPU");
  expect_no_record({"--device", "null:l4", "--with", "gpu=h100", "--capacity", "1GiB"},
                   "give one of them");
  CHECK_THROWS_MATCHES(
      parse_advise_options({"--device", "cuda", "--", "python", "train.py"}), std::invalid_argument,
      MessageMatches(ContainsSubstring("runs the program many times, on a simulated GPU")));
}

TEST_CASE("only levers of the allocator act before a program imports anything") {
  for (const LeverInfo& info : levers()) {
    const bool is_setting = info.code.starts_with("PYTORCH_CUDA_ALLOC_CONF=");
    CHECK(acts_at_start({.name = std::string(info.name)}) == is_setting);
  }
  CHECK(acts_at_start({.name = "expandable-segments"}));
  CHECK_FALSE(acts_at_start({.name = "recompute", .value = "full"}));
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
  CHECK(cost("recompute=every:2,optimizer=fused") < cost("recompute"));
  CHECK(cost("recompute=selective") == cost("recompute=every:2"));
  CHECK(cost("optimizer=8bit,param-dtype=bf16,activations,offload") < cost("world=16"));
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

TEST_CASE("advise finds the cheapest set that brute force finds") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const tests::TemporaryFolder folder;
  for (int i = 0; i < 60; ++i) {
    const ModelProgram program = random_program(random);
    AdviseOptions options;
    options.record.out = folder.path();
    options.record.device.gpu = "h100";
    options.fit_bytes = static_cast<int64_t>(
        std::uniform_real_distribution<double>(0.2 * kWhole, 1.1 * kWhole)(random));
    // Levers that are named are all run; others only while nothing fits that costs less.
    if (i % 2 == 0) options.wanted = program.levers();
    const Findings found = advise_on(program, options);
    const int cheapest = cheapest_of(program, options.fit_bytes);
    const VariantResult* const best = found.best();
    if (found.base.fits(options.fit_bytes)) continue;
    if (best == nullptr) {
      CHECK(cheapest == kNothingFits);
      continue;
    }
    // Where more than three levers help, only the cheapest three are tried together.
    const int cost = cost_of(*best);
    CHECK((best->options.levers.size() > 3 ? cost <= cheapest : cost == cheapest));
    CHECK(best == &found.tried.front());
    CHECK(best->options.device.capacity_bytes == options.fit_bytes);
    CHECK(found.is_complete);
  }
}

TEST_CASE("advise by time finds the fastest set that brute force finds") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const tests::TemporaryFolder folder;
  for (int i = 0; i < 60; ++i) {
    ModelProgram program = random_program(random);
    for (size_t lever = 0; lever < program.shares.size(); ++lever) {
      program.times.push_back(std::uniform_real_distribution<double>(0.7, 1.3)(random));
    }
    AdviseOptions options{.fit_bytes = static_cast<int64_t>(2 * kWhole), .by_time = true};
    options.record.out = folder.path();
    options.record.device.gpu = "h100";
    options.record.traces_work = true;
    options.wanted = program.levers();
    const Findings found = advise_on(program, options);
    // A lever counts that makes the program faster by more than predictions can tell apart.
    std::vector<Lever> faster = program.levers();
    std::erase_if(faster, [&](const Lever& one) { return program.seconds_with({one}) >= 0.95; });
    double least = 1;
    for (const auto& set : sets_of(faster)) least = std::min(least, program.seconds_with(set));
    const VariantResult* const best = found.advised();
    CHECK((best == nullptr) == faster.empty());
    if (best == nullptr) continue;
    CHECK(best->time->seconds == Approx(least));
    CHECK(best == &found.tried.front());
  }
}

TEST_CASE("times are compared for as much data, and a set without one is never the fastest") {
  Findings findings{.fit_bytes = 100, .by_time = true};
  const auto add = [&](const std::string& levers, std::optional<PredictedTime> time) {
    VariantResult result{
        .options = {}, .outcome = VariantOutcome::measured, .time = std::move(time)};
    result.options.levers = parse_levers(levers);
    result.options.device.gpu = "h100";
    findings.tried.push_back(result);
  };
  findings.base.outcome = VariantOutcome::measured;
  findings.base.options.device.gpu = "h100";
  findings.base.time = PredictedTime{.seconds = 2, .tokens_a_second = 1000};
  add("sequence=512", PredictedTime{.seconds = 1, .tokens_a_second = 900});
  add("optimizer=fused", PredictedTime{.seconds = 1.5, .tokens_a_second = 1333});
  add("recompute", PredictedTime{.why = "the trace is damaged"});
  add("autocast=bf16", std::nullopt);
  REQUIRE(findings.advised());
  CHECK(findings.advised()->options.levers == parse_levers("optimizer=fused"));
  CHECK(findings.comparable_seconds(findings.tried[0]) == Approx(2 * 1000 / 900.0));
  CHECK_FALSE(findings.comparable_seconds(findings.tried[2]));
  findings.by_time = false;
  CHECK_FALSE(findings.advised());

  const std::string text = findings_text({}, findings);
  CHECK_THAT(text, ContainsSubstring("900 tokens"));
  CHECK_THAT(text, ContainsSubstring("no step time: the trace is damaged (recompute=full)"));
  const auto json = nlohmann::json::parse(findings_json({}, findings));
  CHECK(json["as_it_is"]["time"]["seconds"] == 2);
  CHECK(json["tried"][2]["time"]["why"] == "the trace is damaged");
  CHECK(json["tried"][2]["time"]["seconds"].is_null());
  CHECK(json["tried"][3]["time"].is_null());
  CHECK_THROWS_MATCHES(parse_advise_options({"--device", "null:h100", "--by", "price", "--", "x"}),
                       std::invalid_argument, MessageMatches(ContainsSubstring("--by price")));
  CHECK(parse_advise_options({"--device", "null:h100", "--by", "time", "--", "x"})
            .record.traces_work);
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
