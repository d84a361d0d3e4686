// Tests runs that are killed and go on: they reach the same bits as runs that were never killed, on
// any number of ranks and with any strategy; and what is refused.
#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <random>

#include "runtime/checkpoint/checkpoint_store.h"
#include "tests/support/fault_log.h"
#include "tests/support/pytorch.h"
#include "tests/support/supervised_run.h"
#include "tests/support/train_bench.h"

using namespace shardlens::tests;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

using Flags = std::vector<std::string>;

Flags joined(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

void require_trained(const ProcessEnd& ended) {
  CAPTURE(ended.out, ended.err);
  REQUIRE(ended.exit_code == 0);
}

size_t lines_in(const std::string& file) {
  std::error_code missing;
  if (!fs::exists(file, missing)) return 0;
  const std::string text = read_file(file);
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

/// Kills all processes of a run at once, after it has reported `steps` steps.
void kill_after(const TrainBench& bench, const Flags& flags, size_t steps) {
  Process launcher(bench.command(flags));
  REQUIRE(wait_until([&] { return lines_in(bench.run_file("metrics.jsonl")) >= steps; }));
  const auto ranks = launcher.children();
  ::kill(launcher.pid(), SIGKILL);  // the ranks die with it
  launcher.wait();
  for (const pid_t rank : ranks) {
    REQUIRE(wait_until([&] { return !is_running(rank); }));
  }
}

void check_refused(const ProcessEnd& ended, const std::string& why) {
  CAPTURE(ended.err, ended.out);
  CHECK(ended.exit_code == 2);
  CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
  CHECK_THAT(ended.err, ContainsSubstring(why));
}

constexpr uint32_t kSamples = 240;  // 10 steps of 24

/// 24 samples a step on `ranks` ranks, three epochs.
Flags on_ranks(int ranks) {
  return {"--workers", std::to_string(ranks), "--batch", std::to_string(24 / ranks), "--epochs",
          "3"};
}

}  // namespace

namespace {

struct NamedFlags {
  std::string name;
  Flags flags;
};

std::vector<NamedFlags> all_kinds() {
  return {
      {"fsdp", {"--workers", "2"}},
      {"ddp", {"--workers", "2", "--strategy", "ddp"}},
      {"offload all", {"--workers", "2", "--offload", "all"}},
      {"fp16", {"--workers", "2", "--param-dtype", "fp16", "--reduce-dtype", "fp16"}},
      {"clip", {"--workers", "2", "--accumulate", "2", "--clip-norm", "0.5", "--log-every", "3"}},
      {"hsdp",
       {"--workers", "4", "--strategy", "hsdp", "--replicas", "2", "--param-dtype", "bf16"}},
      {"ignore",
       {"--workers", "3", "--ignore", "conv_proj", "--optimizer", "sgd", "--momentum", "0.9"}},
      {"offload optimizer", {"--workers", "2", "--offload", "optimizer", "--param-dtype", "bf16"}},
      {"one rank", {"--workers", "1", "--checkpoint-async", "off", "--freeze", "conv_proj"}}};
}

/// Kills a run of `epochs` epochs a few times at random, lets it end, and compares. Returns whether
/// there was a checkpoint to go on from: on a busy machine none may have been published yet.
bool kill_and_compare(const NamedFlags& kind, int epochs, size_t kills, std::mt19937_64& random) {
  const Flags flags = joined(
      {"--epochs", std::to_string(epochs), "--checkpoint-every", "4", "--batch", "4"}, kind.flags);
  const TrainBench whole;
  require_trained(whole.train(flags));
  const size_t lines = whole.losses().size();
  const TrainBench bench;
  for (size_t i = 0; i < kills; ++i) {
    const size_t killed_at = lines / 4 + i * lines / 2 / kills + random() % (lines / 2 / kills);
    CAPTURE(kind.name, killed_at);
    kill_after(bench, flags, killed_at);
  }
  const bool is_saved =
      !shardlens::runtime::CheckpointStore(bench.run_file("checkpoints")).list().empty();
  const ProcessEnd ended = bench.train(flags);
  CAPTURE(kind.name);
  require_trained(ended);
  CHECK_THAT(ended.out,
             ContainsSubstring(is_saved ? "resumes from step" : "it starts from the beginning"));
  CHECK(bench.losses() == whole.losses());
  CHECK(bench.tensors() == whole.tensors());
  CHECK(bench.result().at("train_loss") == whole.result().at("train_loss"));
  CHECK(bench.result().at("test_accuracy") == whole.result().at("test_accuracy"));
  return is_saved;
}

}  // namespace

TEST_CASE("a run that is killed goes on to the same bits", "[resume][faults]") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  int64_t went_on = 0;
  for (const NamedFlags& kind : all_kinds())
    went_on += kill_and_compare(kind, 4, 1, random) ? 1 : 0;
  CHECK(went_on > 0);
}

TEST_CASE("a run that is killed again and again goes on to the same bits",
          "[resume][faults][long]") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 random(seed);
  for (int round = 0; round < 3; ++round) {
    for (const NamedFlags& kind : all_kinds()) kill_and_compare(kind, 15, 4, random);
  }
}

namespace {

/// A run on two ranks whose only checkpoint is that of step 15, in the middle of an epoch.
struct HalfRun {
  HalfRun() : bench(kSamples) {
    require_trained(bench.train(joined(on_ranks(2), {"--checkpoint-every", "15", "--keep", "0"})));
    losses = bench.losses();
    fs::remove_all(bench.run_file("checkpoints/step-00000030"));
    fs::remove(bench.run_file("result.json"));
    fs::copy(bench.run_file(""), bench.file("kept"), fs::copy_options::recursive);
  }
  ProcessEnd go_on(const Flags& flags) const {
    fs::remove_all(bench.run_file(""));
    fs::copy(bench.file("kept"), bench.run_file(""), fs::copy_options::recursive);
    return bench.train(joined(joined({"--epochs", "3", "--checkpoint-every", "15"}, flags), {}));
  }

  TrainBench bench;
  std::vector<double> losses;
};

double worst_difference(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] / b[i] - 1));
  return worst;
}

}  // namespace

TEST_CASE("a run resumes from a checkpoint with any ranks, strategy and dtype", "[resume]") {
  const HalfRun half;
  REQUIRE(half.losses.size() == 30);
  for (const int ranks : {1, 2, 3, 4}) {
    const ProcessEnd ended = half.go_on(on_ranks(ranks));
    CAPTURE(ranks, ended.out);
    require_trained(ended);
    CHECK_THAT(ended.out, ContainsSubstring("resumes from step 15 of 30"));
    CHECK(worst_difference(half.bench.losses(), half.losses) < 1e-5);
    if (ranks == 2) CHECK(half.bench.losses() == half.losses);
    if (ranks == 3) CHECK_THAT(ended.out, ContainsSubstring("--workers 3 (was 2)"));
  }
  const std::vector<std::pair<Flags, double>> others = {
      {{"--strategy", "ddp"}, 1e-5},
      {{"--offload", "all"}, 1e-5},
      {{"--offload", "optimizer", "--accumulate", "2", "--batch", "6"}, 1e-5},
      {{"--reshard-after-forward", "false", "--wrap", "root"}, 1e-5},
      {{"--communicator", "gloo"}, 1e-5},
      {{"--param-dtype", "bf16"}, 2e-2},
      {{"--param-dtype", "fp16", "--offload", "params"}, 2e-2}};
  for (const auto& [flags, tolerance] : others) {
    const ProcessEnd ended = half.go_on(joined(on_ranks(2), flags));
    CAPTURE(flags, ended.out);
    require_trained(ended);
    CHECK(worst_difference(half.bench.losses(), half.losses) < tolerance);
  }
}

TEST_CASE("a damaged checkpoint is skipped for the previous one", "[resume][faults]") {
  const TrainBench bench;
  const Flags flags = {"--workers", "2", "--epochs", "4"};
  require_trained(bench.train(flags));
  const auto losses = bench.losses();
  const auto tensors = bench.tensors();
  fs::remove(bench.run_file("result.json"));
  const std::string newest = bench.run_file("checkpoints/step-00000016");
  std::string bytes = read_file(newest + "/optimizer-00001-of-00001.safetensors");
  bytes[bytes.size() / 2] ^= 4;
  write_file(newest + "/optimizer-00001-of-00001.safetensors", bytes);

  const ProcessEnd ended = bench.train(flags);
  require_trained(ended);
  CHECK_THAT(ended.out, ContainsSubstring("step-00000016 is damaged and passed over: optimizer-"));
  CHECK_THAT(ended.out, ContainsSubstring("resumes from step 12 of 16"));
  CHECK_THAT(ended.err, ContainsSubstring("looking for a whole checkpoint"));
  CHECK(count_of(bench, "damaged") == 1);  // by the ranks, as they read it
  CHECK(count_of(bench, "checkpoint_damaged") == 1);
  CHECK(bench.result().at("restarts") == 1);
  CHECK(bench.losses() == losses);
  CHECK(fs::exists(bench.run_file("checkpoints/damaged-step-00000016")));
  CHECK(bench.tensors() == tensors);

  fs::remove(bench.run_file("result.json"));
  for (const char* step : {"step-00000012", "step-00000016"}) {
    fs::resize_file(bench.run_file("checkpoints/") + step + "/manifest.json", 40);
  }
  check_refused(bench.train(flags), "none of 2 checkpoints is whole");
  CHECK(fs::exists(bench.run_file("checkpoints/step-00000016")));
  require_trained(bench.train(joined(flags, {"--fresh"})));
  CHECK(bench.losses() == losses);
}

TEST_CASE("a run goes on from nothing but its own checkpoints", "[resume]") {
  const TrainBench bench;
  const Flags flags = {"--workers", "2", "--epochs", "2"};
  require_trained(bench.train(flags));
  check_refused(bench.train(flags), "the run is finished");
  fs::remove(bench.run_file("result.json"));
  const auto before = bench.tensors();
  const std::string config = read_file(bench.run_file("config.json"));
  check_refused(bench.train({"--workers", "2", "--epochs", "3"}), "another configuration");
  check_refused(bench.train(joined(flags, {"--checkpoint-every", "none"})),
                "does not resume from it");
  const std::string model = read_file(bench.file("tiny.json"));
  write_file(bench.file("tiny.json"),
             R"({"family": "vit", "image_px": 8, "patch_px": 4, "channels": 1, "layers": 2,
                 "heads": 2, "width": 18, "mlp_width": 32, "classes": 4})");
  check_refused(bench.train(flags), "a checkpoint of another model");
  write_file(bench.file("tiny.json"), model);
  write_idx_dataset(bench.file("data"), {.train = 128, .test = 20, .px = 8, .classes = 4});
  check_refused(bench.train(flags), "the data have changed");
  CHECK(bench.tensors() == before);
  CHECK(read_file(bench.run_file("config.json")) == config);
}

TEST_CASE("a run without a checkpoint starts from the beginning", "[resume][faults]") {
  const TrainBench bench;
  const Flags flags = {"--workers", "2", "--epochs", "3", "--checkpoint-every", "none"};
  kill_after(bench, {"--workers", "2", "--epochs", "300000", "--checkpoint-every", "none"}, 5);
  CHECK_FALSE(fs::exists(bench.run_file("checkpoints")));
  CHECK_FALSE(fs::exists(bench.run_file("model")));
  const ProcessEnd again =
      bench.train(joined(flags, {"--epochs", "300000", "--steps", "7", "--fresh"}));
  require_trained(again);
  CHECK(bench.losses().size() == 7);
}

TEST_CASE("checkpoints that make no sense are refused", "[resume]") {
  const TrainBench bench;
  check_refused(bench.train({"--checkpoint-every", "often"}), "--checkpoint-every often");
  check_refused(bench.train({"--checkpoint-every", "0"}), "--checkpoint-every 0");
  check_refused(bench.train({"--world", "2", "--solo-rank", "0", "--checkpoint-every", "epoch"}),
                "a solo rank has no values");
  check_refused(bench.train({"--device", "null:h200", "--checkpoint-every", "3"}),
                "a null device keeps no values");
  check_refused(bench.train({"--keep", "-1"}), "--keep -1");
  check_refused(bench.train({"--model", "llama-70b", "--data", "synthetic", "--checkpoint-every",
                             "1", "--steps", "1"}),
                "a checkpoint and the model take");
  CHECK_FALSE(fs::exists(bench.file("runs")));
}

namespace {

/// The train command, watched by fault_at.
Flags watched_train(const TrainBench& bench, const Flags& flags, const std::string& fault = "") {
  return watched(bench.command(flags), bench.run_file("checkpoints"), bench.file("log"), fault,
                 SHARDLENS_FAULT_AT);
}

/// Kills `shardlens train` at one in `share` of the operations on its checkpoints; returns the
/// number of kills.
int strike_training(size_t share) {
  const Flags flags = {"--workers", "2", "--epochs", "2", "--keep", "1"};
  const TrainBench whole;
  require_trained(run(watched_train(whole, flags)));
  const auto losses = whole.losses();
  const auto tensors = whole.tensors();
  const auto operations = read_fault_log(whole.file("log"), "begin");
  REQUIRE(operations.size() > 100);
  int cases = 0;
  for (size_t i = Catch::getSeed() % share; i < operations.size(); i += share) {
    if (operations[i].rank < 0) continue;
    CAPTURE(operations[i].text());
    const TrainBench bench;
    const ProcessEnd struck = run(watched_train(bench, flags, operations[i].fault("kill")));
    CAPTURE(struck.err);
    CHECK((struck.exit_code == 1 || operations[i].name == "mkdir"));
    if (struck.exit_code == 0) continue;
    require_trained(bench.train(flags));
    CHECK(bench.losses() == losses);
    CHECK(bench.tensors() == tensors);
    ++cases;
  }
  return cases;
}

}  // namespace

TEST_CASE("training that is killed while it saves goes on to the same bits", "[resume][faults]") {
  strike_training(40);
}

TEST_CASE("training killed anywhere while it saves goes on", "[resume][faults][long]") {
  CHECK(strike_training(1) > 0);
}

TEST_CASE("a disk that is full ends the run in one line", "[resume][faults]") {
  const TrainBench bench;
  const Flags flags = {"--workers", "2", "--epochs", "40"};
  const FileOperation operation{
      .rank = 1,
      .name = "write",
      .path = ".tmp-step-00000008-g1/optimizer-00001-of-00001.safetensors"};
  const ProcessEnd ended = run(watched_train(bench, flags, operation.fault("full")));
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 1);
  CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
  CHECK_THAT(ended.err, ContainsSubstring("No space left on device"));
  CHECK_THAT(bench.train(flags).out, ContainsSubstring("resumes from step 4 of 160"));
}

TEST_CASE("the trained model is read by other programs", "[resume]") {
  const TrainBench bench;
  require_trained(bench.train({"--workers", "2"}));
  require_trained(bench.train(
      {"--workers", "2", "--name", "s", "--init", bench.run_file("model/model.safetensors")}));
  const ProcessEnd ended = run({SHARDLENS, "checkpoint", "inspect", bench.run_file("model")});
  CHECK_THAT(ended.out, ContainsSubstring("heads.head.weight F32 [4, 16]"));
  CHECK(run({SHARDLENS, "checkpoint", "verify", bench.run_file("")}).exit_code == 0);

  constexpr const char* kCompare = R"(
import sys, torch
from safetensors.torch import load_file
run = sys.argv[1]
stored = load_file(run + "/model/model.safetensors")
pickled = torch.load(run + "/model/full-model.pt", weights_only=True)
assert type(pickled) is dict and list(pickled) == list(stored), list(pickled)
assert all(torch.equal(pickled[name], stored[name]) for name in stored)
mapped = torch.load(run + "/model/full-model.pt", weights_only=True, mmap=True)
assert all(torch.equal(mapped[name], stored[name]) for name in stored)
checkpoint = load_file(run + "/checkpoints/step-00000004/model-00001-of-00001.safetensors")
assert all(torch.equal(checkpoint[name], stored[name]) for name in stored)
)";
  const ProcessEnd compared = run(python_with_pytorch({"-c", kCompare, bench.run_file("")}));
  if (compared.exit_code == kNoPyTorch) SKIP(kWithoutPyTorch);
  INFO(compared.err);
  CHECK(compared.exit_code == 0);
}
