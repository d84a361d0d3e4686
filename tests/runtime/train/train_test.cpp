// Tests `shardlens train` as a user sees it: what it writes, what it refuses, how it ends when a
// rank dies or hangs.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "tests/support/image_files.h"
#include "tests/support/train_bench.h"

using namespace shardlens::tests;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::StartsWith;
namespace fs = std::filesystem;

namespace {

using Bench = TrainBench;

nlohmann::json report_of(const Bench& bench) {
  const ProcessEnd report = run({SHARDLENS_PROFILE, "report", bench.file("runs/r"), "--json"});
  CAPTURE(report.err);
  REQUIRE(report.exit_code == 0);
  return nlohmann::json::parse(report.out);
}

void check_refused(const ProcessEnd& ended, const std::string& why) {
  CAPTURE(ended.err, ended.out);
  CHECK(ended.exit_code == 2);
  CHECK(ended.out.empty());
  CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
  CHECK_THAT(ended.err, ContainsSubstring(why));
}

}  // namespace

TEST_CASE("a run leaves its configuration, metrics, logs and result", "[train]") {
  const Bench bench;
  const std::string communicator = GENERATE("local", "gloo");
  const ProcessEnd ended =
      bench.train({"--workers", "2", "--epochs", "2", "--communicator", communicator});
  CAPTURE(communicator, ended.err, ended.out);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.err.empty());
  CHECK_THAT(ended.out, ContainsSubstring("test accuracy"));
  const auto result = bench.result();
  CHECK(result.at("schema") == "shardlens.run/1");
  CHECK(result.at("status") == "ok");
  CHECK(result.at("steps") == 8);  // 64 samples, 2 ranks, batch 8, 2 epochs
  CHECK(result.at("epochs") == 2);
  CHECK(result.at("restarts") == 0);
  CHECK(result.at("step_ms").at("median").get<double>() > 0);
  CHECK(bench.losses().size() == 8);
  CHECK(nlohmann::json::parse(read_file(bench.file("runs/r/config.json"))).at("workers") == 2);
  for (const char* log : {"rank0.log", "rank1.log"}) {
    CHECK_THAT(read_file(bench.file("runs/r/logs/") + log), ContainsSubstring("joined"));
  }
}

TEST_CASE("a DeepSpeed configuration is trained as it is read", "[train]") {
  const Bench bench;
  write_file(bench.file("ds.json"),
             R"({"zero_optimization": {"stage": 3, "overlap_comm": true}, "train_batch_size": 32,)"
             R"( "gradient_accumulation_steps": 2, "gradient_clipping": 1.0, "steps_per_print": 5,)"
             R"( "optimizer": {"type": "AdamW", "params": {"lr": 0.002}}})");
  const ProcessEnd ended = bench.train({"--workers", "2", "--config", bench.file("ds.json")});
  CAPTURE(ended.err, ended.out);
  REQUIRE(ended.exit_code == 0);
  CHECK_THAT(ended.out, ContainsSubstring("ds.json, DeepSpeed configuration:\n"));
  CHECK_THAT(ended.out,
             ContainsSubstring(
                 "zero_optimization.stage 3 -> --strategy fsdp --reshard-after-forward true\n"));
  CHECK_THAT(ended.out, ContainsSubstring("ignored, it only prints or logs: steps_per_print 5\n"));
  const auto config = nlohmann::json::parse(read_file(bench.file("runs/r/config.json")));
  CHECK(config.at("reshard_after_forward") == "true");
  CHECK(config.at("accumulate") == 2);
  CHECK(config.at("optimizer") == "adamw");
  CHECK(config.at("lr") == 0.002);
  CHECK(config.at("clip_norm") == 1.0);
}

TEST_CASE("a recorded run says where every byte of each rank went", "[train]") {
  const Bench bench;
  REQUIRE(bench.train({"--workers", "2", "--profile", "on"}).exit_code == 0);
  const nlohmann::json report = report_of(bench);
  REQUIRE(report["ranks"].size() == 2);
  for (const nlohmann::json& rank : report["ranks"]) {
    int64_t total = 0;
    for (const auto& [name, bytes] : rank["at_peak"]["categories"].items()) {
      total += bytes.get<int64_t>();
    }
    CHECK(total == rank["peak"]["allocated_bytes"]);
    CHECK(rank["at_peak"]["categories"]["parameter_shard"] > 0);
    CHECK(rank["steps"].size() == 4);  // 64 samples, 2 ranks, batch 8
    CHECK(rank["lost"] == 0);
  }
}

TEST_CASE("strategies and communicators learn the same", "[train]") {
  const Bench bench;
  const auto losses = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> all = flags;
    all.insert(all.end(), {"--fresh", "--steps", "4"});
    const ProcessEnd ended = bench.train(all);
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    return bench.losses();
  };
  const auto one = losses({"--strategy", "single", "--batch", "16"});
  REQUIRE(one.size() == 4);
  const std::vector<std::vector<std::string>> others = {
      {"--strategy", "fsdp", "--batch", "16"},
      {"--strategy", "ddp", "--workers", "2"},
      {"--strategy", "fsdp", "--workers", "2"},
      {"--strategy", "fsdp", "--workers", "2", "--communicator", "gloo"},
      {"--strategy", "ddp", "--workers", "2", "--communicator", "gloo"},
      {"--strategy", "fsdp", "--workers", "4", "--batch", "4", "--reshard-after-forward", "true"},
  };
  for (const auto& flags : others) {
    const auto other = losses(flags);
    CAPTURE(flags, one, other);
    REQUIRE(other.size() == one.size());
    for (size_t i = 0; i < one.size(); ++i) CHECK(std::abs(other[i] / one[i] - 1) < 1e-5);
  }
}

TEST_CASE("a run that cannot be trained is refused and leaves nothing", "[train]") {
  const Bench bench;
  fs::remove(bench.file("data/t10k-labels-idx1-ubyte"));
  fs::copy(bench.file("data"), bench.file("cut"));
  write_idx_dataset(bench.file("data"), {.train = 64, .test = 20, .px = 8, .classes = 4});
  write_file(bench.file("file"), "");
  fs::resize_file(bench.file("data/train-images-idx3-ubyte"), 1000);
  check_refused(bench.train({}), "train-images-idx3-ubyte");
  write_idx_dataset(bench.file("data"), {.train = 64, .test = 20, .px = 8, .classes = 4});
  check_refused(bench.train({"--data", bench.file("cut")}), "t10k-labels-idx1-ubyte");
  check_refused(bench.train({"--data", bench.file("none")}), "none");
  check_refused(bench.train({"--model", "vit-tutoral"}), "vit-tutorial");
  check_refused(bench.train({"--model", "vit-tutorial"}), "28 x 28 px");
  check_refused(bench.train({"--modle", "x"}), "did you mean --model?");
  check_refused(bench.train({"--workers", "0"}), "--workers 0");
  check_refused(bench.train({"--batch", "65"}), "64 samples");
  check_refused(bench.train({"--batch", "33", "--workers", "2"}), "32 samples");
  check_refused(bench.train({"--storage", bench.file("file") + "/runs"}), "--storage");
  check_refused(bench.train({"--storage", "/proc/runs"}), "--storage");
  check_refused(bench.train({"--name", "../r"}), "--name ../r");
  check_refused(bench.train({"--init", bench.file("none.safetensors")}), "none.safetensors");
  CHECK_FALSE(fs::exists(bench.file("runs")));
  CHECK(fs::file_size(bench.file("file")) == 0);
}

namespace {

constexpr const char* kColourModel =
    R"({"family": "vit", "image_px": 8, "patch_px": 4, "channels": 3, "layers": 1, "heads": 2,
        "width": 16, "mlp_width": 32, "classes": 2})";

/// Bright and dark pictures of many sizes, 32 of each.
void write_pictures(const Bench& bench) {
  for (int i = 0; i < 64; ++i) {
    const bool bright = i % 2 == 0;
    const auto value = static_cast<uint8_t>((bright ? 150 : 10) + i);
    write_picture(bench.file("pictures/") + (bright ? "bright/" : "dark/") + std::to_string(i) +
                      (i % 3 == 0 ? ".jpg" : ".png"),
                  plain_picture(8 + i % 7, 9 + i % 5, value, value, value));
  }
}

}  // namespace

TEST_CASE("start weights are verified by the manifest beside them", "[train][weights]") {
  const TrainBench bench;
  REQUIRE(bench.train({"--steps", "2"}).exit_code == 0);
  const std::string model = bench.run_file("model/model.safetensors");
  const auto train = [&](const std::string& init) {
    return bench.train({"--name", "other", "--fresh", "--steps", "1", "--init", init});
  };
  const auto init_of_result = [&] {
    return nlohmann::json::parse(read_file(bench.file("runs/other/result.json"))).at("init");
  };
  const ProcessEnd whole = train(bench.run_file("model"));
  CAPTURE(whole.err);
  REQUIRE(whole.exit_code == 0);
  CHECK(whole.out.find("not verified") == std::string::npos);
  CHECK(init_of_result().at("verified") == true);
  std::filesystem::copy_file(model, bench.file("alone.safetensors"));
  const ProcessEnd alone = train(bench.file("alone.safetensors"));
  REQUIRE(alone.exit_code == 0);
  CHECK_THAT(alone.out, ContainsSubstring("alone.safetensors: not verified: no manifest.json"));
  CHECK(init_of_result().at("verified") == false);
  std::string bytes = read_file(model);
  bytes.back() ^= 1;
  write_file(model, bytes);
  for (const std::string& init : {bench.run_file("model"), model}) {
    const ProcessEnd damaged = train(init);
    CAPTURE(damaged.err);
    CHECK(damaged.exit_code == 2);
    CHECK(std::count(damaged.err.begin(), damaged.err.end(), '\n') == 1);
    CHECK_THAT(damaged.err,
               ContainsSubstring("--init ") &&
                   ContainsSubstring("model.safetensors: is damaged: its bytes 0 to "));
  }
}

TEST_CASE("a limit on file sizes is reported", "[train][faults]") {
  const TrainBench bench;
  REQUIRE(bench.train({"--steps", "1"}).exit_code == 0);
  const auto check_told = [](const std::vector<std::string>& words, const std::string& why) {
    std::string command = "ulimit -f 4; exec";  // KiB
    for (const std::string& word : words) command += " " + word;
    const ProcessEnd ended = run({"/bin/bash", "-c", command});
    CAPTURE(ended.out, ended.err);
    CHECK(ended.exit_code == 1);
    CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
    CHECK_THAT(ended.err, ContainsSubstring("File too large") && ContainsSubstring(why));
  };
  check_told(
      {SHARDLENS, "checkpoint", "import", bench.run_file("model"), "--out", bench.file("imported")},
      "raise the limit on file sizes (ulimit -f)");
  CHECK_FALSE(fs::exists(bench.file("imported")));
  check_told(bench.command({"--fresh"}), "memory shared between ranks");
}

TEST_CASE("a folder of images by class is learned", "[train]") {
  const Bench bench;
  write_pictures(bench);
  write_file(bench.file("colour.json"), kColourModel);
  const std::vector<std::string> flags = {"--model",   bench.file("colour.json"),
                                          "--data",    bench.file("pictures"),
                                          "--workers", "2",
                                          "--epochs",  "12",
                                          "--batch",   "4",
                                          "--lr",      "0.01"};
  const ProcessEnd ended = bench.train(flags);
  CAPTURE(ended.err, ended.out);
  REQUIRE(ended.exit_code == 0);
  CHECK(bench.losses().back() < 0.3 * bench.losses().front());
  CHECK(bench.result().at("test_accuracy") == 1.0);

  write_file(bench.file("pictures/dark/broken.png"), "no image");
  write_file(bench.file("pictures/dark/broken2.png"), "no image");
  std::vector<std::string> again = flags;
  again.emplace_back("--fresh");
  const ProcessEnd broken = bench.train(again);
  CHECK(broken.exit_code == 2);  // and no restart: the image would be the same
  CHECK(std::count(broken.err.begin(), broken.err.end(), '\n') == 1);
  CHECK_THAT(broken.err, ContainsSubstring("pictures/dark/broken") &&
                             ContainsSubstring("cannot be read as an image"));
}

TEST_CASE("a folder of images that does not fit the model is refused", "[train]") {
  const Bench bench;
  write_pictures(bench);
  const std::string pictures = bench.file("pictures");
  write_picture(pictures + "/third/1.png", plain_picture(8, 8, 1, 2, 3));
  write_file(bench.file("colour.json"), kColourModel);
  check_refused(bench.train({"--model", bench.file("colour.json"), "--data", pictures}),
                "has 2 classes, but --data " + pictures + " has 3");
  check_refused(bench.train({"--data", pictures, "--batch", "65"}), "--batch 65");
  check_refused(bench.train({"--model", "simple-model", "--data", pictures}), "takes no images");
  check_refused(bench.train({"--model", "llama-1b", "--data", "fashion-mnist"}), "takes no images");
  check_refused(bench.train({"--seq", "16"}), "takes no tokens");
  CHECK_FALSE(fs::exists(bench.file("runs")));
}

TEST_CASE("every family trains on synthetic data, whichever way it is sharded", "[train]") {
  const Bench bench;
  write_file(bench.file("llama.json"),
             R"({"family": "llama", "layers": 2, "width": 32, "heads": 4, "kv_heads": 2,
                 "mlp_width": 48, "vocab": 64, "tied": true})");
  const auto [model, speed] =
      GENERATE(table<std::string, std::string>({{"llama.json", "tokens_per_s"},
                                                {"transformer", "tokens_per_s"},
                                                {"simple-model", "samples_per_s"}}));
  const bool is_file = model.ends_with(".json");
  const bool has_tokens = speed == "tokens_per_s";
  for (const char* strategy : {"fsdp", "ddp"}) {
    std::vector<std::string> flags = {"--model",    is_file ? bench.file(model) : model,
                                      "--data",     "synthetic",
                                      "--strategy", strategy,
                                      "--workers",  "2",
                                      "--steps",    "5",
                                      "--batch",    "2",
                                      "--fresh"};
    if (has_tokens) flags.insert(flags.end(), {"--seq", "8"});
    const ProcessEnd ended = bench.train(flags);
    CAPTURE(model, strategy, ended.err, ended.out);
    REQUIRE(ended.exit_code == 0);
    const auto losses = bench.losses();
    REQUIRE(losses.size() == 5);
    CHECK(losses.back() < losses.front());
    CHECK_THAT(read_file(bench.file("runs/r/metrics.jsonl")), ContainsSubstring(speed));
  }
}

TEST_CASE("a name that belongs to another run is refused", "[train]") {
  const Bench bench;
  REQUIRE(bench.train({"--epochs", "1"}).exit_code == 0);
  const std::string before = read_file(bench.file("runs/r/result.json"));
  check_refused(bench.train({"--epochs", "1"}), "the run is finished");
  check_refused(bench.train({"--epochs", "2"}), "another configuration");
  CHECK(read_file(bench.file("runs/r/result.json")) == before);
  CHECK(bench.train({"--epochs", "1", "--fresh"}).exit_code == 0);

  fs::create_directory(bench.file("runs/mine"));
  write_file(bench.file("runs/mine/thesis.txt"), "x");
  check_refused(bench.train({"--name", "mine", "--fresh"}), "not a run");
  CHECK(fs::exists(bench.file("runs/mine/thesis.txt")));
}

namespace {

/// A run that would go on for a long time, after all its ranks take steps.
std::vector<std::string> endless(const Bench& bench, std::vector<std::string> flags) {
  flags.insert(flags.end(), {"--workers", "3", "--epochs", "1000000", "--timeout", "3"});
  return bench.command(flags);
}

bool takes_steps(const Bench& bench) {
  std::error_code missing;
  return fs::file_size(bench.file("runs/r/metrics.jsonl"), missing) > 200 && !missing;
}

/// It says which rank, in which step, doing what. A rank that saves is not in a step.
void check_names(const ProcessEnd& ended, const std::string& rank) {
  CAPTURE(ended.err);
  CHECK_THAT(ended.err, ContainsSubstring(rank));
  CHECK_THAT(ended.err, ContainsSubstring("step "));
  const char* operations[] = {"LOAD_INPUT", "CAST_SHARD", "ALL_GATHER",     "FORWARD",
                              "RESHARD",    "LOSS",       "BACKWARD",       "ALL_REDUCE",
                              "SUM",        "BARRIER",    "OPTIMIZER_STEP", "REDUCE_SCATTER"};
  CHECK(std::any_of(std::begin(operations), std::end(operations), [&](const char* operation) {
    return ended.err.find(operation) != std::string::npos;
  }));
}

bool none_running(const std::vector<pid_t>& pids) {
  return std::none_of(pids.begin(), pids.end(), is_running);
}

constexpr double kTimeoutS = 3;  // what `endless` runs with
constexpr double kGraceS = 10;   // within which the group must be gone after a death or a deadline

/// Kills or stops one rank once `ready` holds; the group must end, and in time.
ProcessEnd strike(const Bench& bench, const std::string& communicator, int rank, int signal,
                  const std::function<bool()>& ready, const std::string& saves = "auto") {
  Process launcher(endless(bench, {"--communicator", communicator, "--checkpoint-every", saves}));
  REQUIRE(wait_until([&] { return launcher.children().size() == 3; }));
  const auto ranks = launcher.children();
  REQUIRE(wait_until(ready));
  const auto struck = std::chrono::steady_clock::now();
  REQUIRE(::kill(ranks[rank], signal) == 0);
  const ProcessEnd ended = launcher.wait();
  const std::chrono::duration<double> after = std::chrono::steady_clock::now() - struck;
  CAPTURE(communicator, rank, signal, ended.err, after.count());
  CHECK(ended.exit_code == 1);
  CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
  CHECK(after.count() < kGraceS + (signal == SIGSTOP ? kTimeoutS : 0));
  CHECK(none_running(ranks));
  CHECK(bench.result().at("status") == "failed");
  return ended;
}

}  // namespace

TEST_CASE("a rank that dies ends the group and is named", "[train][faults]") {
  const Bench bench;
  const std::string communicator = GENERATE("local", "gloo");
  const ProcessEnd ended = strike(
      bench, communicator, 1, SIGKILL, [&] { return takes_steps(bench); }, "none");
  check_names(ended, "rank 1");
}

TEST_CASE("a recording outlives the rank that is killed", "[train][faults]") {
  const Bench bench;
  Process launcher(endless(bench, {"--profile", "on"}));
  REQUIRE(wait_until([&] { return takes_steps(bench); }));
  for (const pid_t rank : launcher.children()) REQUIRE(::kill(rank, SIGKILL) == 0);
  launcher.wait();
  const nlohmann::json report = report_of(bench);
  REQUIRE(report["ranks"].size() == 3);
  for (const nlohmann::json& rank : report["ranks"]) {
    CHECK(rank["events"] > 1000);
    CHECK(rank["steps"].size() >= 2);
    CHECK(rank["peak"]["allocated_bytes"] > 0);
  }
}

TEST_CASE("a rank that hangs is named once the deadline has passed", "[train][faults]") {
  const Bench bench;
  const std::string communicator = GENERATE("local", "gloo");
  const ProcessEnd ended = strike(
      bench, communicator, 2, SIGSTOP, [&] { return takes_steps(bench); }, "none");
  check_names(ended, "rank 2 is stopped");  // Gloo itself names no rank
}

TEST_CASE("a rank that is stopped at the start is named", "[train][faults]") {
  const Bench bench;
  const std::string communicator = GENERATE("local", "gloo");
  const ProcessEnd ended = strike(bench, communicator, 0, SIGSTOP, [] { return true; });
  CHECK_THAT(ended.err, ContainsSubstring("rank 0"));
}

TEST_CASE("any rank, stopped or killed at any time, ends the group", "[train][long]") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 30; ++round) {
    CAPTURE(round);
    const Bench bench;
    const int victim = static_cast<int>(random() % 3);
    const int signal = random() % 2 == 0 ? SIGKILL : SIGSTOP;
    const std::string communicator = random() % 2 == 0 ? "local" : "gloo";
    const auto moment =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(random() % 2000);
    const ProcessEnd ended = strike(bench, communicator, victim, signal,
                                    [&] { return std::chrono::steady_clock::now() > moment; });
    CHECK_THAT(ended.err, ContainsSubstring("rank "));
  }
}

TEST_CASE("Ctrl-C ends the run by the signal, and so does SIGTERM if nothing is saved",
          "[train][faults]") {
  const Bench bench;
  const int signal = GENERATE(SIGINT, SIGTERM);
  Process launcher(endless(bench, {"--checkpoint-every", signal == SIGINT ? "auto" : "none"}));
  REQUIRE(wait_until([&] { return takes_steps(bench); }));
  const auto ranks = launcher.children();
  ::kill(launcher.pid(), signal);
  const ProcessEnd ended = launcher.wait();
  CAPTURE(ended.err);
  CHECK(ended.signal == signal);
  CHECK_THAT(ended.err, ContainsSubstring("interrupted in "));
  CHECK(none_running(ranks));
  CHECK(bench.result().at("status") == "failed");
}

TEST_CASE("the programs find every library without a cache or a CUDA toolkit", "[train]") {
  const ProcessEnd ended =
      run({"/lib64/ld-linux-x86-64.so.2", "--inhibit-cache", "--list", SHARDLENS_TRAIN});
  CAPTURE(ended.out, ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(ended.out.find("not found") == std::string::npos);
  std::istringstream lines(ended.out);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("libcud") == std::string::npos && line.find("libcupti") == std::string::npos) {
      continue;
    }
    CHECK_THAT(line, ContainsSubstring(SHARDLENS_DEPS));
  }
}

TEST_CASE("the dispatcher becomes the command's program", "[train]") {
  CHECK_THAT(run({SHARDLENS, "train", "--help"}).out, ContainsSubstring("usage: shardlens train"));
  CHECK_THAT(run({SHARDLENS, "--help"}).out, ContainsSubstring("train"));
  check_refused(run({SHARDLENS, "trian"}), "trian: unknown command");
  CHECK(run({SHARDLENS}).exit_code == 2);
  CHECK_THAT(run({SHARDLENS, "help", "gate"}).out, ContainsSubstring("usage: shardlens gate"));
  check_refused(run({SHARDLENS, "help", "gait"}), "gait: unknown command");
  CHECK_THAT(run({SHARDLENS, "--version"}).out, StartsWith("shardlens 0."));
}

/// The words that Bash offers after the words of a command line, the last of which is being typed.
std::string completed(const std::string& words, int last) {
  const std::string script = fmt::format(
      "source <({} completion bash); COMP_WORDS=({}); COMP_CWORD={}; _shardlens; "
      "echo \"${{COMPREPLY[*]}}\"",
      SHARDLENS, words, last);
  const std::string line = run({"/usr/bin/env", "bash", "-c", script}).out;
  return line.substr(0, line.find('\n'));
}

TEST_CASE("a shell completes commands, their flags and the words of a flag", "[train]") {
  const std::string program = SHARDLENS;
  CHECK(completed(program + " pl", 1) == "plan");
  CHECK(completed(program + " help ga", 2) == "gate");
  CHECK(completed(program + " plan --engin", 2) == "--engine");
  CHECK(completed(program + " plan --offload op", 3) == "optimizer");
  CHECK(completed(program + " profile repo", 2) == "report");
  CHECK(completed(program + " record -- python --wor", 4).empty());
  check_refused(run({SHARDLENS, "completion", "tcsh"}), "give bash, zsh or fish");
}

TEST_CASE("ranks do not outlive their launcher", "[train][faults]") {
  const Bench bench;
  Process launcher(endless(bench, {}));
  REQUIRE(wait_until([&] { return takes_steps(bench); }));
  const auto ranks = launcher.children();
  check_refused(bench.train({"--workers", "3"}), "the run is live");
  ::kill(launcher.pid(), SIGKILL);
  launcher.wait();
  CHECK(wait_until([&] { return none_running(ranks); }, std::chrono::seconds(10)));
}
