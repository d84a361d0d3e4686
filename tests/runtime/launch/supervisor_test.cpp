// Tests runs that go on by themselves after a failure, and runs that save and end on request: they
// reach the same bits as undisturbed runs.
#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/fault_log.h"
#include "tests/support/image_files.h"
#include "tests/support/supervised_run.h"

using namespace shardlens::tests;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

using Flags = std::vector<std::string>;

const Flags kRun = {"--workers",          "3",  "--epochs",  "40",
                    "--checkpoint-every", "10", "--timeout", "5"};

Flags with_flags(Flags flags, const Flags& more) {
  flags.insert(flags.end(), more.begin(), more.end());
  return flags;
}

/// The losses of kRun, undisturbed.
const TrainBench& undisturbed() {
  static const TrainBench bench;
  static const ProcessEnd ended = bench.train(kRun);
  REQUIRE(ended.exit_code == 0);
  return bench;
}

void check_same_bits(const TrainBench& bench) {
  CHECK(bench.result().at("status") == "ok");
  CHECK(bench.losses() == undisturbed().losses());
  CHECK(bench.tensors() == undisturbed().tensors());
  CHECK(bench.result().at("test_accuracy") == undisturbed().result().at("test_accuracy"));
}

/// Strikes a rank after the run has done `steps` steps; returns its process.
pid_t strike(const TrainBench& bench, const Process& launcher, size_t steps, int rank, int signal) {
  REQUIRE(wait_until([&] { return steps_told(bench) >= steps; }));
  const pid_t pid = launcher.children().at(static_cast<size_t>(rank));
  REQUIRE(::kill(pid, signal) == 0);
  return pid;
}

size_t lines_in(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

TEST_CASE("a run that loses a rank starts it again, to the same bits", "[supervisor][faults]") {
  const TrainBench bench;
  const int rank = static_cast<int>(Catch::getSeed() % 3);
  Process launcher(bench.command(with_flags(kRun, {"--max-failures", "1"})));
  strike(bench, launcher, 25, rank, SIGKILL);
  const ProcessEnd ended = launcher.wait();
  CAPTURE(rank, ended.out, ended.err);
  CHECK(ended.exit_code == 0);
  CHECK(lines_in(ended.err) == 1);
  CHECK_THAT(ended.err, ContainsSubstring("was killed by signal 9") &&
                            ContainsSubstring("failure 1 of 1: restarting in 0.25 s"));
  CHECK_THAT(ended.out, ContainsSubstring("resumes from step "));
  check_same_bits(bench);
  CHECK(bench.result().at("restarts") == 1);
  const std::vector<std::string> kinds = {"started", "killed", "resumed", "restarted", "finished"};
  CHECK(kinds_of(bench) == kinds);
  const auto events = events_of(bench);
  CHECK(events[1].rank == rank);
  CHECK(*events[1].step >= 24);
  CHECK(events[1].generation == 1);
  CHECK(events[3].generation == 2);
}

TEST_CASE("a rank that is stopped is named, ended and replaced", "[supervisor][faults]") {
  const TrainBench bench;
  const std::string communicator = GENERATE("local", "gloo");
  Process launcher(bench.command(
      with_flags(kRun, {"--max-failures", "1", "--timeout", "3", "--communicator", communicator})));
  const pid_t stopped = strike(bench, launcher, 15, 2, SIGSTOP);
  REQUIRE(wait_until([&] { return count_of(bench, "restarted") == 1; }));
  CHECK_FALSE(is_running(stopped));
  const ProcessEnd ended = launcher.wait();
  CAPTURE(communicator, ended.out, ended.err);
  CHECK(ended.exit_code == 0);
  CHECK_THAT(ended.err, ContainsSubstring("rank 2 is stopped (a signal such as SIGSTOP), in "));
  if (communicator == "local") {
    // The first to wait reports it: a peer in a collective, or rank 0 for its part of a checkpoint.
    CHECK_THAT(ended.err, ContainsSubstring("rank 2 did not arrive within 3 s") ||
                              ContainsSubstring("rank 2 has not written its part within 3.0 s"));
    check_same_bits(bench);
  }
  const auto events = events_of(bench);
  CHECK(events[1].kind == "hung");
  CHECK(events[1].rank == 2);
  for (const int rank : {0, 1, 2}) {
    const std::string actions =
        read_file(bench.run_file("logs/actions-rank" + std::to_string(rank) + ".txt"));
    CHECK_THAT(actions, ContainsSubstring("attempt 1: its last ") &&
                            ContainsSubstring("training, step ") &&
                            ContainsSubstring("BACKWARD of "));
  }
}

TEST_CASE("a single rank that is stopped is noticed by its launcher", "[supervisor][faults]") {
  const TrainBench bench;
  Process launcher(bench.command({"--epochs", "1000000", "--timeout", "1"}));
  strike(bench, launcher, 5, 0, SIGSTOP);
  const ProcessEnd ended = launcher.wait();
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 1);
  CHECK_THAT(ended.err, ContainsSubstring("rank 0 was stopped for 1 s; last seen in "));
  CHECK(kinds_of(bench) == std::vector<std::string>{"started", "hung"});
}

TEST_CASE("a disk that is full for a while is waited for", "[supervisor][faults]") {
  const TrainBench bench;
  std::vector<std::string> words =
      watched(bench.command(with_flags(kRun, {"--max-failures", "20"})), bench.file("runs"), "", "",
              SHARDLENS_FAULT_AT);
  words.insert(words.begin() + 1, "SHARDLENS_FAULT_FULL=" + bench.file("full"));
  std::erase(words, "SHARDLENS_FAULT_LOG=");
  Process launcher(words);
  REQUIRE(wait_until([&] { return steps_told(bench) >= 25; }));
  write_file(bench.file("full"), "");
  std::this_thread::sleep_for(std::chrono::seconds(2));
  fs::remove(bench.file("full"));
  const ProcessEnd ended = launcher.wait();
  CAPTURE(ended.out, ended.err);
  CHECK(ended.exit_code == 0);
  check_same_bits(bench);
  // The first failure, and attempts that never began.
  CHECK(count_of(bench, "disk_full") >= 2);
  CHECK(bench.result().at("restarts") == count_of(bench, "disk_full"));
}

TEST_CASE("failures beyond --max-failures end the run", "[supervisor][faults]") {
  const TrainBench bench;
  Process launcher(bench.command({"--workers", "2", "--epochs", "1000000", "--max-failures", "1",
                                  "--checkpoint-every", "10"}));
  strike(bench, launcher, 15, 0, SIGKILL);
  REQUIRE(wait_until([&] { return count_of(bench, "restarted") == 1; }));
  strike(bench, launcher, 45, 1, SIGKILL);
  const ProcessEnd ended = launcher.wait();
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 1);
  CHECK(lines_in(ended.err) == 2);
  CHECK_THAT(ended.err, ContainsSubstring("this was failure 2 of --max-failures 1"));
  CHECK(bench.result().at("status") == "failed");
  CHECK(bench.result().at("restarts") == 1);
  CHECK(kinds_of(bench).back() == "gave_up");
}

TEST_CASE("a run that keeps failing for one cause is given up", "[supervisor][faults]") {
  const TrainBench bench;
  std::vector<std::string> words =
      watched(bench.command(with_flags(kRun, {"--max-failures", "-1", "--give-up-after", "3"})),
              bench.file("runs"), "", "0 8 kill append r/metrics.jsonl", SHARDLENS_FAULT_AT);
  words.insert(words.begin() + 1, "SHARDLENS_FAULT_WORLD=3");
  std::erase(words, "SHARDLENS_FAULT_LOG=");
  const ProcessEnd ended = run(words);
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 1);
  CHECK_THAT(ended.err, ContainsSubstring("no progress: killed at step ") &&
                            ContainsSubstring("each time, 3 times in a row from the start") &&
                            ContainsSubstring("--give-up-after 3; not restarted: fix"));
  CHECK(lines_in(ended.err) == 3);
  CHECK(count_of(bench, "killed") == 3);
  CHECK(kinds_of(bench).back() == "gave_up");
}

TEST_CASE("a picture that cannot be read ends a run, whatever restarts it has", "[supervisor]") {
  const TrainBench bench;
  for (int i = 0; i < 32; ++i) {
    write_picture(bench.file("pictures/") + (i % 2 == 0 ? "a/" : "b/") + std::to_string(i) + ".png",
                  plain_picture(8, 8, static_cast<uint8_t>(i), 0, 0));
  }
  write_file(bench.file("pictures/a/broken.png"), "no image");
  write_file(bench.file("grey.json"),
             R"({"family": "vit", "image_px": 8, "patch_px": 4, "channels": 3, "layers": 1,
                 "heads": 2, "width": 16, "mlp_width": 32, "classes": 2})");
  const ProcessEnd ended =
      bench.train({"--model", bench.file("grey.json"), "--data", bench.file("pictures"), "--batch",
                   "2", "--workers", "2", "--max-failures", "-1"});
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK_THAT(ended.err, ContainsSubstring("broken.png") && ContainsSubstring("fix or remove it"));
  CHECK(lines_in(ended.err) == 1);
}

TEST_CASE("SIGTERM lets a run save and end, and the same command goes on", "[supervisor][faults]") {
  const TrainBench bench;
  const auto seed = Catch::getSeed();
  std::mt19937_64 random(seed);
  size_t steps = 1;
  for (const int signal : {SIGTERM, SIGUSR1, SIGUSR2}) {
    Process launcher(bench.command(kRun));
    steps += random() % 15;
    CAPTURE(seed, steps, signal);
    REQUIRE(wait_until([&] { return steps_told(bench) >= steps; }));
    const auto ranks = launcher.children();
    // Sent to every process, as a scheduler does.
    for (const pid_t rank : ranks) ::kill(rank, signal);
    ::kill(launcher.pid(), signal);
    const ProcessEnd ended = launcher.wait();
    CAPTURE(ended.out, ended.err);
    REQUIRE(ended.exit_code == 143);
    CHECK(ended.err.empty());
    CHECK_THAT(ended.out, ContainsSubstring("preempted by signal "));
    CHECK(bench.result().at("status") == "preempted");
    CHECK(bench.result().at("steps") == steps_told(bench));
    CHECK(kinds_of(bench).back() == "preempted");
    CHECK(std::none_of(ranks.begin(), ranks.end(), is_running));
    steps = steps_told(bench) + 1;
  }
  const ProcessEnd ended = bench.train(kRun);
  CAPTURE(ended.out, ended.err);
  CHECK_THAT(ended.out, ContainsSubstring("resumes from step " + std::to_string(steps - 1) + " "));
  CHECK(bench.losses() == undisturbed().losses());
  const auto mine = bench.tensors();
  for (const auto& [file, bytes] : undisturbed().tensors()) {
    if (!file.starts_with("model/")) continue;
    CHECK(mine.at(file) == bytes);
  }
}

TEST_CASE("a run that cannot save in time, or is told twice, ends now", "[supervisor][faults]") {
  const TrainBench bench;
  const bool is_twice = GENERATE(false, true);
  Process launcher(bench.command({"--workers", "2", "--epochs", "1000000", "--max-failures", "-1",
                                  "--grace", is_twice ? "60" : "1"}));
  const pid_t stopped = strike(bench, launcher, 5, 1, SIGSTOP);
  ::kill(launcher.pid(), SIGTERM);
  if (is_twice) {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    ::kill(launcher.pid(), SIGTERM);
  }
  const ProcessEnd ended = launcher.wait();
  CAPTURE(is_twice, ended.out, ended.err);
  CHECK(ended.signal == SIGTERM);
  CHECK(ended.seconds < 30);
  CHECK_THAT(ended.err,
             ContainsSubstring(is_twice ? "interrupted in " : "not saved within --grace"));
  CHECK(bench.result().at("status") == "failed");
  CHECK(kinds_of(bench) == std::vector<std::string>{"started", "interrupted"});
  CHECK_FALSE(is_running(stopped));
}

TEST_CASE("a rank that is stopped does not outlive its launcher", "[supervisor][faults]") {
  const TrainBench bench;
  pid_t stopped = 0;
  {
    Process launcher(bench.command(kRun));
    REQUIRE(wait_until([&] { return fs::exists(bench.run_file("checkpoints/LATEST")); }));
    stopped = strike(bench, launcher, 12, 1, SIGSTOP);
    ::kill(launcher.pid(), SIGKILL);
    launcher.wait();
  }
  CHECK(wait_until([&] { return !is_running(stopped); }, std::chrono::seconds(10)));
  const ProcessEnd ended = bench.train(kRun);
  CAPTURE(ended.out, ended.err);
  CHECK(ended.exit_code == 0);
  check_same_bits(bench);
  CHECK(kinds_of(bench) == std::vector<std::string>{"started", "lost", "resumed", "finished"});
}
