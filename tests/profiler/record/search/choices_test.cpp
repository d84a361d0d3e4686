// The cheapest settings that fit, against brute force over all combinations.

#include "profiler/record/search/choices.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "profiler/record/search/solve.h"
#include "tests/support/temporary_folder.h"

namespace shardlens::profiler {

namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using tests::TemporaryFolder;
using Words = std::vector<std::string>;

constexpr int64_t kBudget = int64_t{1} << 30;

/// A program that takes as many bytes as its flags, and their order, say.
int64_t bytes_of(const RecordOptions& program, uint64_t seed) {
  std::string words;
  for (const std::string& word : program.command) words += word + " ";
  std::mt19937_64 random(seed ^ std::hash<std::string>{}(words));
  return static_cast<int64_t>(random() % (2 * kBudget));
}

VariantResult result_of(const RecordOptions& program, int64_t bytes, VariantOutcome outcome) {
  VariantResult result{.options = program, .outcome = outcome};
  result.reserved_bytes = bytes;
  result.why = "does not fit: out of memory";
  result.time = PredictedTime{.seconds = double(1 + bytes % 97), .basis = "cold"};
  return result;
}

ChoiceOptions options_in(const TemporaryFolder& folder) {
  ChoiceOptions options{.record = {},
                        .choices = {{"", "--a 1"}, {"--b 0", "", "--b 2"}, {"", "--c"}}};
  options.record.device = {.kind = DeviceKind::null, .gpu = "h100", .capacity_bytes = kBudget};
  options.record.out = folder.path();
  options.record.command = {"python", "train.py"};
  return options;
}

}  // namespace

TEST_CASE("alternatives are combined from the cheapest on") {
  CHECK(parse_alternatives("|--a  1 --b") == Words{"", "--a 1 --b"});
  CHECK(parse_alternatives("--a|") == Words{"--a", ""});
  CHECK(combined_flags({{"", "--a 1"}, {"", "--b"}}) == Words{"", "--a 1", "--b", "--a 1 --b"});
  CHECK_THROWS_MATCHES(parse_alternatives("--a"), std::invalid_argument,
                       MessageMatches(ContainsSubstring("the cheapest first")));
  const auto refused = [](Words flags, const std::string& why) {
    flags.insert(flags.end(), {"--device", "null:h100", "--", "python", "{n}"});
    CHECK_THROWS_MATCHES(parse_sweep_options(flags), std::invalid_argument,
                         MessageMatches(ContainsSubstring(why)));
  };
  refused({"--choices", "|--a", "--values", "n=1"}, "remove one");
  refused({"--by", "time", "--values", "n=1"}, "only orders --choices");
  refused({"--by", "luck", "--choices", "|--a"}, "--by luck");
}

TEST_CASE("the settings worth considering are those that brute force finds") {
  const uint64_t seed = std::random_device{}();
  INFO("seed " << seed);
  const TemporaryFolder folder;
  ChoiceOptions options = options_in(folder);
  options.by_time = seed % 2 == 0;
  const RankedSettings found = choose(options, [&](const auto& all, const auto&) {
    std::vector<VariantResult> results;
    for (const RecordOptions& program : all) {
      const int64_t bytes = bytes_of(program, seed);
      const bool fits = bytes <= kBudget;
      results.push_back(result_of(program, bytes,
                                  fits ? VariantOutcome::measured : VariantOutcome::out_of_memory));
    }
    return results;
  });
  REQUIRE(found.runs.size() == 12);
  const auto is_before = [&](const ChosenRun& one, const ChosenRun& other) {
    if (&one == &other) return false;
    return options.by_time && one.result.time->seconds != other.result.time->seconds
               ? one.result.time->seconds < other.result.time->seconds
               : &one < &other;
  };
  for (const ChosenRun& run : found.runs) {
    INFO(run.flags);
    const bool fits = bytes_of(run.result.options, seed) <= kBudget;
    const bool is_beaten = std::ranges::any_of(found.runs, [&](const ChosenRun& other) {
      return bytes_of(other.result.options, seed) <= run.result.reserved_bytes &&
             is_before(other, run);
    });
    CHECK(run.rejected.has_value() == (!fits || is_beaten));
    if (!fits) CHECK(run.rejected->starts_with("does not fit: out of memory"));
    if (fits && is_beaten) CHECK_THAT(*run.rejected, ContainsSubstring("no smaller than: "));
  }
}

TEST_CASE("a search of settings says what fits, what does not, and how to run it again") {
  const TemporaryFolder folder;
  ChoiceOptions options = options_in(folder);
  options.choices = {{"", "--recompute full"}, {"", "--fused"}};
  const std::vector<VariantOutcome> outcomes = {VariantOutcome::out_of_memory,
                                                VariantOutcome::measured, VariantOutcome::failed};
  const RankedSettings found = choose(options, [&](const auto& all, const auto&) {
    std::vector<VariantResult> results;
    for (size_t i = 0; i < outcomes.size(); ++i) {
      results.push_back(result_of(all[i], 1 << 20, outcomes[i]));
    }
    return results;  // the last one was interrupted
  });
  const auto json = nlohmann::json::parse(choices_json(options, found));
  CHECK(json["schema"] == "shardlens.search/1");
  CHECK(json["budget_bytes"] == kBudget);
  CHECK(json["candidates"] == 4);
  CHECK(json["left_out"] == 1);
  REQUIRE(json["front"].size() == 1);
  const auto& best = json["front"][0];
  CHECK(best["flags"] == "--recompute full");
  CHECK(best["config"] == nlohmann::json{{"recompute", "full"}});
  CHECK(best["device_bytes"] == 1 << 20);
  CHECK(best["relative_step_time"] == 1.0);
  CHECK_THAT(best["command"].get<std::string>(),
             ContainsSubstring("-- python train.py --recompute full"));
  CHECK_THAT(best["run"].get<std::string>(), ContainsSubstring("/recompute=full"));
  REQUIRE(json["rejected"].size() == 2);
  CHECK(json["rejected"][0]["flags"] == "as given");
  CHECK(json["rejected"][1]["reason"].get<std::string>().starts_with("failed: "));
  const std::string text = choices_text(options, found);
  CHECK_THAT(text, ContainsSubstring("1 of 4 settings is worth considering within 1.00 GiB"));
  CHECK_THAT(text, ContainsSubstring("  --recompute full\n"));
  CHECK_THAT(text, ContainsSubstring("       1  does not fit\n"));
  CHECK_THAT(text, ContainsSubstring("interrupted; 1 more settings"));
}

}  // namespace shardlens::profiler
