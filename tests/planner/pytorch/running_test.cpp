// The command that a plan by running becomes, and the program that --write gives.

#include "planner/pytorch/running.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>
#include <vector>

namespace shardlens::planner {

namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::StartsWith;
using Words = std::vector<std::string>;

const std::string kProgram = SHARDLENS_SOURCE_DIR "/planner/pytorch/train.py";

/// Plans a model that needs no file, and leaves it out of the command if `flags` name none.
RunningPlan running_plan(Words flags) {
  const bool has_model = std::ranges::find(flags, "--model") != flags.end();
  flags.insert(flags.begin(), {"--engine", "pytorch"});
  if (!has_model) flags.insert(flags.end(), {"--model", "m"});
  RunningPlan plan = plan_by_running(flags, kProgram);
  const auto model = std::ranges::find(plan.command, "--model");
  if (!has_model && model != plan.command.end()) plan.command.erase(model, model + 2);
  return plan;
}

void expect_running_refused(const Words& flags, const std::string& why) {
  CHECK_THROWS_MATCHES(running_plan(flags), std::invalid_argument,
                       MessageMatches(ContainsSubstring(why)));
}

}  // namespace

TEST_CASE("a plan by running predicts times if it is asked to") {
  CHECK(running_plan({"--gpu", "h100", "--time"}).command ==
        Words{"record", "--device", "null:h100", "--world", "1", "--rank", "0", "--time", "--",
              "python", kProgram});
  CHECK(running_plan({"--gpu", "h100", "--explain", "--by", "time", "--calibration", "a.json"})
            .command == Words{"advise", "--device", "null:h100", "--world", "1", "--rank", "0",
                              "--calibration", "a.json", "--by", "time", "--", "python", kProgram});
  expect_running_refused({"--gpu", "h100", "--by", "time"}, "add one");
}

TEST_CASE("a plan by running is a command of ours") {
  CHECK(plans_by_running({"--engine=pytorch"}));
  CHECK(plans_by_running({"--engine", "pytorch-fsdp2"}));
  CHECK_FALSE(plans_by_running({"--engine", "shardlens"}));
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
  const auto solved = running_plan({"--gpu", "l4", "--explain", "--json"}).command;
  CHECK(Words(solved.begin(), solved.begin() + 2) == Words{"advise", "--device"});
  CHECK(std::ranges::count(solved, "--json") == 1);
  CHECK(running_plan({"--gpu", "l4", "--json", "--out", "x"}).json_of == "x");
  CHECK_THAT(running_plan({"--gpu", "l4", "--json"}).json_of, StartsWith("runs/train-"));
  expect_running_refused({"--model", "a"}, "--gpu is missing");
  expect_running_refused({"--gpu", "l4", "--pytorch", "fused"}, "--write FILE.py gives it");
  expect_running_refused({"--gpu", "l4", "--torch", "2.11"}, "give --python");
  expect_running_refused({"--gpu", "l4", "--banana", "1"}, "banana");
  expect_running_refused({"--gpu", "l4", "--solve", "seq", "--explain"}, "exclude each other");
}

TEST_CASE("a plan that cannot run is refused before the program starts") {
  expect_running_refused({"--gpu", "l4", "--model", "missing/config.json"},
                         "--model missing/config.json: there is no such file");
  expect_running_refused({"--gpu", "l4", "--world", "6", "--tp", "4"},
                         "--replicas 1 --tp 4: the product does not divide 6 ranks");
  expect_running_refused({"--gpu", "l4", "--strategy", "hsdp", "--replicas", "2"},
                         "does not divide 1 rank");
  expect_running_refused({"--gpu", "l4", "--tp", "0"}, "does not divide");
  const std::string large = "4294967296";  // its square is 0 in 64 bits
  expect_running_refused({"--gpu", "l4", "--replicas", large, "--tp", large}, "does not divide");
  CHECK_NOTHROW(running_plan({"--gpu", "l4", "--world", "12", "--replicas", "3", "--tp", "4"}));
}

TEST_CASE("a search by running tries the settings that were not given") {
  const auto choices_of = [](Words flags) {
    flags.insert(flags.end(), {"--gpu", "h100", "--search"});
    Words choices;
    for (const std::string& word : running_plan(flags).command) {
      if (word.starts_with("--choices=")) choices.push_back(word.substr(word.find('=') + 1));
    }
    return choices;
  };
  const std::string recompute = "|--recompute every:2|--recompute full",
                    dtype = "|--param-dtype bf16";
  CHECK(running_plan({"--gpu", "h100", "--search"}).command.front() == "sweep");
  CHECK(choices_of({}) == Words{recompute, "|--offload all", dtype});
  CHECK(choices_of({"--world", "12", "--accumulate", "3", "--param-dtype", "fp32"}) ==
        Words{"--reshard-after-forward false|", "|--tp 2 --accumulate 6|--tp 4 --accumulate 12",
              recompute, "|--offload all"});
  CHECK(choices_of({"--world", "8", "--strategy", "ddp"}) == Words{recompute, dtype});
  CHECK(choices_of({"--world", "8", "--strategy", "hsdp", "--replicas", "4", "--offload", "none",
                    "--recompute", "full"}) ==
        Words{"--reshard-after-forward false|", "|--tp 2 --accumulate 2", dtype});
  CHECK(choices_of({"--world", "8", "--lora", "8", "--quantize", "nf4"}) ==
        Words{"--reshard-after-forward false|", recompute, dtype});
  CHECK(choices_of({"--world", "2", "--model", "timm:vit", "--reshard-after-forward", "true"}) ==
        Words{recompute, "|--offload all", dtype});
  expect_running_refused({"--gpu", "l4", "--search", "--offload", "all", "--param-dtype", "bf16",
                          "--recompute", "full"},
                         "each setting is given");
  expect_running_refused({"--gpu", "l4", "--search", "--explain"}, "exclude each other");
}

TEST_CASE("a preset is a model of transformers of the same sizes") {
  const auto model_of = [](const char* name) {
    return running_plan({"--gpu", "h100", "--model", name}).command.back();
  };
  CHECK(model_of("llama-70b") ==
        "llama:hidden_size=8192,intermediate_size=28672,num_hidden_layers=80,"
        "num_attention_heads=64,num_key_value_heads=8,vocab_size=128256,rope_theta=500000,"
        "tie_word_embeddings=false");
  CHECK_THAT(model_of("vit-b16"), ContainsSubstring("vit:image_size=224,patch_size=16,"));
  CHECK(model_of("Qwen/Qwen3-8B") == "Qwen/Qwen3-8B");
  expect_running_refused({"--gpu", "h100", "--model", "simple-model"}, "give a config.json");
}

TEST_CASE("a setting has a value that the program takes") {
  for (const char* flag : {"--write", "--gpu"}) {
    const auto refuses = [&](const char* setting, const char* value, const char* why) {
      expect_running_refused({flag, "x.py", setting, value}, why);
    };
    refuses("--batch", "many", "give a number of at least 0, without a fraction");
    refuses("--batch", "1.5", "without a fraction");
    refuses("--seq", "-4", "give a number");
    refuses("--clip-norm", "x", "give a number of at least 0");
    refuses("--optimizer", "lion", "give one of adamw, adam, sgd");
    refuses("--param-dtype", "fp8", "give one of fp32, bf16, fp16");
  }
  CHECK(running_plan({"--gpu", "l4", "--lr", "3e-4"}).command.back() == "3e-4");
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
