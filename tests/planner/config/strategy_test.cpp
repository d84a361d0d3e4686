#include "planner/config/strategy.h"
#include "planner/config/arguments.h"
#include "planner/config/checkpointing.h"
#include "planner/config/options.h"
#include "planner/config/recording.h"

#include <fmt/ranges.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_range.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::planner;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

/// The error that the user gets, which must be one line.
std::string refusal(const std::vector<std::string>& arguments) {
  try {
    Config config = parse_arguments(arguments).config;
    if (!config.device.kind) config.device.kind = DeviceKind::cpu;  // as the runtime would decide
    strategy_of(config);
  } catch (const std::invalid_argument& error) {
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("flags set the field of their name and keep the other defaults") {
  const Config config =
      parse_arguments({"--batch", "7", "--lr=0.5", "--strategy", "ddp", "--workers", "2", "--fresh",
                       "--name", "x", "--device", "cpu"})
          .config;
  CHECK(config.batch == 7);
  CHECK(config.lr == 0.5);
  CHECK(config.strategy == StrategyKind::ddp);
  CHECK(config.fresh);
  CHECK(config.name == "x");
  CHECK(config.epochs == Config{}.epochs);
  const Strategy strategy = strategy_of(config);
  CHECK(strategy.kind == StrategyKind::ddp);
  CHECK(strategy.world_size == 2);
  CHECK(strategy.communicator == CommunicatorKind::local);
}

TEST_CASE("every option survives a round trip through JSON") {
  Config config;
  for (const Option& option : options()) {
    if (std::holds_alternative<bool Config::*>(option.field)) {
      set_option(config, option, "true");
    } else if (std::holds_alternative<int64_t Config::*>(option.field) ||
               std::holds_alternative<double Config::*>(option.field)) {
      set_option(config, option, "3");
    } else {
      set_option(config, option, option.value.substr(0, option.value.find('|')));
    }
  }
  Config read;
  read_json(read, to_json(config), "config.json");
  CHECK(to_json(read) == to_json(config));
  CHECK(to_json(read) != to_json(Config{}));
  CHECK(nlohmann::json::parse(to_json(config)).size() == options().size());
}

TEST_CASE("the help names the words of every closed choice") {
  for (const Option& option : options()) {
    std::visit(
        [&]<class Value>(Value Config::*) {
          if constexpr (ClosedChoice<Value>) {
            CHECK(option.value == fmt::format("{}", fmt::join(kWords<Value>, "|")));
          }
        },
        option.field);
  }
}

TEST_CASE("a config file is read first and flags override it") {
  const shardlens::tests::TemporaryFolder folder;
  shardlens::tests::write_file(folder.file("c.json"), R"({"batch": 8, "log_every": 3})");
  const Config config = parse_arguments({"--batch", "9", "--config", folder.file("c.json")}).config;
  CHECK(config.batch == 9);
  CHECK(config.log_every == 3);
}

TEST_CASE("wrong flags get one line: what, why, how to fix") {
  CHECK_THAT(refusal({"--bathc", "3"}), ContainsSubstring("did you mean --batch?"));
  CHECK_THAT(refusal({"--frobnicate", "3"}), ContainsSubstring("see --help"));
  CHECK_THAT(refusal({"3"}), ContainsSubstring("not a flag"));
  CHECK_THAT(refusal({"--batch", "1", "2"}), ContainsSubstring("2: not a flag"));
  CHECK_THAT(refusal({"--cast-inputs", "true", "false"}), ContainsSubstring("false: not a flag"));
  CHECK_THAT(refusal({"--model", std::string("a\0b", 3)}), ContainsSubstring("a\\u0000b"));
  CHECK_THAT(refusal({"--batch"}), ContainsSubstring("--batch"));
  CHECK_THAT(refusal({"--batch", "0"}), ContainsSubstring("less than 1"));
  CHECK_THAT(refusal({"--batch", "1.5"}), ContainsSubstring("not a whole number"));
  CHECK_THAT(refusal({"--batch", "99999999999999999999"}), ContainsSubstring("too large"));
  CHECK_THAT(refusal({"--workers", "0"}), ContainsSubstring("less than 1"));
  CHECK_THAT(refusal({"--workers", "100000"}), ContainsSubstring("at most 1024"));
  CHECK_THAT(refusal({"--lr", "nan"}), ContainsSubstring("not a finite number"));
  CHECK_THAT(refusal({"--lr", "0"}), ContainsSubstring("above 0"));
  CHECK_THAT(refusal({"--timeout", "-1"}), ContainsSubstring("less than 0"));
  CHECK_THAT(refusal({"--strategy", "zero"}), ContainsSubstring("single|ddp|fsdp"));
  CHECK_THAT(refusal({"--strategy", "single", "--workers", "2"}),
             ContainsSubstring("single is one rank"));
  CHECK_THAT(refusal({"--config", "/no/such/file"}), ContainsSubstring("cannot be opened"));
}

TEST_CASE("a recording has all steps, some or none") {
  const auto recording = [](const std::string& word) {
    return recording_of(parse_arguments({"--profile", word}).config);
  };
  CHECK_FALSE(recording_of(Config{}).wanted);
  CHECK_FALSE(recording("off").wanted);
  CHECK(recording("on").wanted);
  CHECK_FALSE(recording("on").steps);
  CHECK(recording("3:5").wanted);
  CHECK(recording("3:5").steps == shardlens::StepRange{.first = 3, .last = 5});
  CHECK(recording("7:7").steps == shardlens::StepRange{.first = 7, .last = 7});
  for (const std::string word : {"5:3", "0:3", "-1:3", "3", "3:", ":3", ":", "a:b", "3:5:7", "3: 5",
                                 "ON", "", "1e3:2000", "1:99999999999999999999"}) {
    CAPTURE(word);
    CHECK_THROWS_MATCHES(
        recording(word), std::invalid_argument,
        MessageMatches(ContainsSubstring("--profile " + word + ":") &&
                       ContainsSubstring("FIRST:LAST such as 3:5") && !ContainsSubstring("\n")));
  }
}

TEST_CASE("wrong config files name the file and the key") {
  const std::pair<const char*, const char*> cases[] = {
      {"{", "not valid JSON"},
      {"[1]", "not a JSON object"},
      {R"({"bath": 1})", "unknown key \"bath\""},
      {R"({"batch": "x"})", "key \"batch\""},
      {R"({"batch": [1]})", "key \"batch\""},
      {R"({"batch": 0})", "less than 1"},
      {R"({"fresh": 1})", "key \"fresh\""},
  };
  for (const auto& [text, message] : cases) {
    CAPTURE(text);
    Config config;
    CHECK_THROWS_MATCHES(read_json(config, text, "c.json"), std::invalid_argument,
                         MessageMatches(ContainsSubstring("c.json") && ContainsSubstring(message)));
  }
}

TEST_CASE("two runs are the same run if what is learned is the same") {
  Config one, other;
  other.strategy = StrategyKind::ddp;
  other.workers = 2;
  other.batch = one.batch / 2;
  other.storage = "elsewhere";
  CHECK(run_identity(one) == run_identity(other));
  for (const char* flag : {"--batch", "--epochs", "--seed", "--lr", "--seq"}) {
    CAPTURE(flag);
    CHECK(run_identity(parse_arguments({flag, "9"}).config) != run_identity(one));
  }
}

TEST_CASE("files that a run reads are named so that any folder finds them") {
  Config config;
  config.model = "models/tiny.json";
  config.data = "../images";
  config.init = "w.safetensors";
  const Config made = with_absolute_inputs(config, "/base/run");
  CHECK(made.model == "/base/run/models/tiny.json");
  CHECK(made.data == "/base/images");
  CHECK(made.init == "/base/run/w.safetensors");
  CHECK(with_absolute_inputs(made, "/elsewhere").model == made.model);
  const std::string here = std::filesystem::current_path().string();
  CHECK(with_absolute_inputs(config).model == here + "/models/tiny.json");
  for (const char* word : {"auto", "fashion-mnist", "synthetic"}) {
    config.data = word;
    CHECK(with_absolute_inputs(config).data == word);
  }
  config.model = "vit-tutorial";
  config.init = "";
  CHECK(with_absolute_inputs(config).model == "vit-tutorial");
  CHECK(with_absolute_inputs(config).init.empty());
}

TEST_CASE("a run of an older release, with relative paths, is the same run") {
  Config config;
  config.model = "models/tiny.json";
  config.init = "w.safetensors";
  nlohmann::ordered_json old = nlohmann::ordered_json::parse(run_identity(config));
  CHECK(old.at("model") == std::filesystem::current_path().string() + "/models/tiny.json");
  old["model"] = config.model;
  old["init"] = config.init;
  CHECK(is_identity_of(config, old.dump()));
  CHECK(is_identity_of(with_absolute_inputs(config), old.dump()));
  old["model"] = "models/other.json";
  CHECK_FALSE(is_identity_of(config, old.dump()));
  CHECK_FALSE(is_identity_of(config, "{}"));
  CHECK_FALSE(is_identity_of(config, "damaged"));
}

TEST_CASE("the help names every option and its default") {
  const std::string help = help_text("train");
  for (const Option& option : options()) {
    CHECK_THAT(help, ContainsSubstring("--" + std::string(option.name)));
  }
  CHECK_THAT(help, ContainsSubstring("(default 64)"));
}

TEST_CASE("FSDP1's names are strategies with a reshard mode") {
  const auto strategy = [](const char* name) {
    Config config = parse_arguments({"--strategy", name, "--workers", "4"}).config;
    config.device = device_named("cpu");
    if (config.strategy == StrategyKind::hsdp) config.replicas = 2;
    return strategy_of(config);
  };
  CHECK(strategy("FULL_SHARD").kind == StrategyKind::fsdp);
  CHECK(strategy("FULL_SHARD").reshard_after_forward == Reshard::yes);
  CHECK(strategy("SHARD_GRAD_OP").reshard_after_forward == Reshard::no);
  CHECK(strategy("NO_SHARD").kind == StrategyKind::ddp);
  CHECK(strategy("HYBRID_SHARD").kind == StrategyKind::hsdp);
  CHECK(strategy("HYBRID_SHARD").shards() == 2);
}

TEST_CASE("combinations that cannot run are refused in one line") {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--strategy", "hsdp", "--replicas", "3", "--workers", "4"}, "give a divisor"},
      {{"--replicas", "2", "--workers", "4"}, "give --strategy hsdp"},
      {{"--reshard-after-forward", "maybe"}, "give auto, true, false or a number of ranks"},
      {{"--reshard-after-forward", "0"}, "--reshard-after-forward 0"},
      {{"--param-dtype", "fp16", "--loss-scale", "none"}, "small gradients would be lost"},
      {{"--loss-scale", "-1"}, "give auto, none or a number above 0"},
      {{"--loss-scale", "nan"}, "give auto, none or a number above 0"},
      {{"--wrap", "size:"}, "--wrap size:"},
      {{"--wrap", "size:-3"}, "not a policy"},
      {{"--wrap", "module:"}, "not a policy"},
      {{"--recompute", "every:0"}, "give none, full or every:K"},
      {{"--momentum", "0.9"}, "give --optimizer sgd"},
      {{"--attention", "efficient"}, "runs on GPUs only"},
      {{"--forward-prefetch", "99999999999"}, "at most"},
      {{"--accumulate", "0"}, "less than 1"}};
  for (const auto& [flags, told] : cases) {
    CAPTURE(flags);
    CHECK_THAT(refusal(flags), ContainsSubstring(told));
  }
}

TEST_CASE("checkpoints are made if there is something to keep") {
  const auto of = [](const std::vector<std::string>& flags) {
    Config config = parse_arguments(flags).config;
    if (!config.device.kind) config.device.kind = DeviceKind::cpu;
    return checkpointing_of(config);
  };
  const Checkpointing plain = of({});
  CHECK(plain.wanted);
  CHECK(plain.every_steps == 0);
  CHECK(plain.asynchronous);
  CHECK(plain.keep == 2);
  CHECK_FALSE(of({"--data", "synthetic"}).wanted);
  CHECK_FALSE(of({"--device", "null:h200"}).wanted);
  CHECK_FALSE(of({"--world", "2", "--solo-rank", "1"}).wanted);
  CHECK_FALSE(of({"--checkpoint-every", "none"}).wanted);
  CHECK(of({"--data", "synthetic", "--checkpoint-every", "epoch"}).wanted);
  const Checkpointing asked = of({"--checkpoint-every", "50", "--checkpoint-async", "off", "--keep",
                                  "0", "--keep-by", "accuracy"});
  CHECK(asked.wanted);
  CHECK(asked.every_steps == 50);
  CHECK_FALSE(asked.asynchronous);
  CHECK(asked.keep == 0);
  CHECK(asked.by == KeepRule::accuracy);
  CHECK_THROWS_WITH(of({"--checkpoint-every", "now"}), ContainsSubstring("--checkpoint-every now"));
  CHECK_THROWS_WITH(of({"--checkpoint-every", "epoch", "--device", "null:h200"}),
                    ContainsSubstring("a null device keeps no values"));
  CHECK_THROWS_WITH(of({"--checkpoint-every", "5", "--world", "2", "--solo-rank", "0"}),
                    ContainsSubstring("a solo rank has no values"));
}
