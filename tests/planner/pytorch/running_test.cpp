// The command that a plan by running becomes, and the program that --write gives.

#include "planner/pytorch/running.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>
#include <vector>

namespace shardlens::planner {

namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Words = std::vector<std::string>;

const std::string kProgram = SHARDLENS_SOURCE_DIR "/planner/pytorch/train.py";

RunningPlan running_plan(Words flags) {
  flags.insert(flags.begin(), {"--engine", "pytorch"});
  return plan_by_running(flags, kProgram);
}

void expect_running_refused(const Words& flags, const std::string& why) {
  CHECK_THROWS_MATCHES(running_plan(flags), std::invalid_argument,
                       MessageMatches(ContainsSubstring(why)));
}

}  // namespace

TEST_CASE("a plan by running is a command of ours") {
  CHECK(plans_by_running({"--engine=pytorch"}));
  CHECK_FALSE(plans_by_running({"--engine", "pytorch-fsdp2"}));
  CHECK_FALSE(plans_by_running({"--model", "pytorch"}));
  CHECK(running_plan({"--gpu", "h100", "--world", "16", "--seq", "4096", "--fused"}).command ==
        Words{"record", "--device", "null:h100", "--world", "16", "--rank", "0", "--", "python",
              kProgram, "--seq", "4096", "--fused"});
  CHECK(running_plan({"--gpu", "l4", "--ranks", "roles", "--python", "p"}).command ==
        Words{"record", "--device", "null:l4", "--world", "1", "--ranks", "roles", "--", "p",
              kProgram});
  CHECK(running_plan({"--gpu", "l4", "--solve", "batch", "--batch", "4"}).command.back() ==
        "{batch}");
  CHECK(running_plan({"--gpu", "l4", "--explain"}).command.front() == "advise");
  expect_running_refused({"--model", "a"}, "--gpu is missing");
  expect_running_refused({"--gpu", "l4", "--banana", "1"}, "banana");
  expect_running_refused({"--gpu", "l4", "--solve", "seq", "--explain"}, "exclude each other");
}

TEST_CASE("a written program has the settings that were given") {
  const std::string text =
      running_plan({"--write", "x.py", "--seq", "77", "--fused", "--model", "a\"b\\c"}).program;
  CHECK_THAT(text, ContainsSubstring("    \"seq\": 77,  # tokens of a sample\n"));
  CHECK_THAT(text, ContainsSubstring("    \"fused\": True,"));
  CHECK_THAT(text, ContainsSubstring(R"(    "model": "a\"b\\c",)"));
  CHECK_THAT(text, ContainsSubstring("    \"batch\": 1,"));
  const std::string help = running_help(kProgram);
  for (const char* flag : {"--gpu", "--write", "--param-dtype", "--clip-norm", "--recompute"}) {
    CHECK_THAT(help, ContainsSubstring(flag));
  }
}

}  // namespace shardlens::planner
