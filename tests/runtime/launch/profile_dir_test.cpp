// Tests recordings on each host's own disk (--profile-dir): they are in the run's folder at the
// end, however the ranks have ended and whichever launcher has started them.
#include <signal.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/free_port.h"
#include "tests/support/launched_runs.h"
#include "tests/support/torchrun.h"

using namespace shardlens::tests;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

Words recorded_in(const TrainBench& bench, const std::string& disk) {
  return {"--profile", "on", "--profile-dir", bench.file(disk)};
}

/// The number of steps in each rank's recording in the run's folder, as `shardlens profile report`
/// reads it.
std::vector<size_t> steps_recorded(const TrainBench& bench) {
  const ProcessEnd report = run({SHARDLENS_PROFILE, "report", bench.run_file(""), "--json"});
  INFO(report.err);
  REQUIRE(report.exit_code == 0);
  std::vector<size_t> steps;
  const auto json = nlohmann::json::parse(report.out);
  for (const auto& rank : json.at("ranks")) steps.push_back(rank.at("steps").size());
  return steps;
}

bool is_recorded(const TrainBench& bench, int rank) {
  return fs::exists(bench.run_file("profiles/rank" + std::to_string(rank) + ".slp"));
}

/// No files of the run are left on the host's disk.
bool is_clean(const TrainBench& bench, const std::string& disk) {
  return fs::is_empty(bench.file(disk));
}

}  // namespace

TEST_CASE("recordings on a host's own disk are collected at the end", "[profile_dir][train]") {
  const TrainBench bench;
  const ProcessEnd ended =
      bench.train(Words{"--workers", "2", "--steps", "3"} + recorded_in(bench, "disk"));
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK(ended.err.empty());
  CHECK(steps_recorded(bench) == std::vector<size_t>{3, 3});
  CHECK(is_clean(bench, "disk"));
}

TEST_CASE("a run that fails collects the recording of the rank that was killed, too",
          "[profile_dir][faults]") {
  const TrainBench bench;
  Process launcher(bench.command(kLong + Words{"--workers", "2"} + recorded_in(bench, "disk")));
  REQUIRE(wait_until([&] { return has_checkpoint(bench); }));
  CHECK_FALSE(is_recorded(bench, 0));  // until then they are elsewhere
  ::kill(launcher.children().at(1), SIGKILL);
  const ProcessEnd ended = launcher.wait();
  INFO(ended.err);
  CHECK(ended.exit_code == 1);
  const std::vector<size_t> steps = steps_recorded(bench);
  REQUIRE(steps.size() == 2);
  CHECK(steps[0] >= 40);
  CHECK(steps[1] >= 40);
  CHECK(is_clean(bench, "disk"));
}

TEST_CASE("the recordings of a killed group are collected by the next attempt",
          "[profile_dir][faults]") {
  const TrainBench bench;
  const Words flags = kLong + Words{"--workers", "2", "--profile-dir", bench.file("disk")};
  Process launcher(bench.command(flags + Words{"--profile", "on"}));
  REQUIRE(wait_until([&] { return has_checkpoint(bench); }));
  const std::vector<pid_t> ranks = launcher.children();
  ::kill(launcher.pid(), SIGKILL);
  launcher.wait();
  REQUIRE(wait_until([&] { return !is_running(ranks[0]) && !is_running(ranks[1]); }));
  CHECK_FALSE(is_recorded(bench, 0));
  CHECK_FALSE(is_clean(bench, "disk"));

  const ProcessEnd next = bench.train(flags);
  INFO(next.err);
  CHECK(next.exit_code == 0);
  CHECK_THAT(next.out, ContainsSubstring("collected an earlier attempt's recording: ") &&
                           ContainsSubstring("profiles/rank1.slp"));
  const std::vector<size_t> steps = steps_recorded(bench);
  REQUIRE(steps.size() == 2);
  CHECK(steps[0] >= 40);
  CHECK(is_clean(bench, "disk"));
}

TEST_CASE("a folder that cannot be recorded in is refused before anything is made",
          "[profile_dir]") {
  const TrainBench bench;
  const ProcessEnd ended = bench.train(recorded_in(bench, "tiny.json"));
  CHECK(ended.exit_code == 2);
  CHECK_THAT(ended.err, ContainsSubstring("--profile-dir ") &&
                            ContainsSubstring("cannot be written (Not a directory)"));
  CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
  CHECK_FALSE(fs::exists(bench.file("runs")));
}

TEST_CASE("two hosts of torchrun collect from their own disks, also after a failure",
          "[profile_dir][peers]") {
  SKIP_WITHOUT_TORCHRUN();
  const TrainBench bench;
  const std::string port = std::to_string(free_port());
  std::vector<std::unique_ptr<Process>> agents;
  for (int node = 0; node < 2; ++node) {
    agents.push_back(std::make_unique<Process>(
        torchrun_agent(node, 2, port, {"--max-restarts", "1", "--monitor-interval", "0.1"}) +
        bench.command(kLong + recorded_in(bench, "disk" + std::to_string(node)))));
  }
  REQUIRE(wait_until([&] { return has_checkpoint(bench); }));
  REQUIRE(agents[1]->children().size() >= 1);
  ::kill(agents[1]->children().back(), SIGKILL);
  const ProcessEnd first = agents[0]->wait(), second = agents[1]->wait();
  INFO(first.err << second.err);
  CHECK(first.exit_code == 0);
  CHECK(second.exit_code == 0);
  // The rank that was killed could not; its host's next rank did.
  CHECK_THAT(first.out + second.out,
             ContainsSubstring("collected an earlier attempt's recording: "));
  const std::vector<size_t> steps = steps_recorded(bench);
  REQUIRE(steps.size() == 2);
  CHECK(steps[0] >= 10);  // of the last attempt
  CHECK(steps[0] == steps[1]);
  CHECK(is_clean(bench, "disk0"));
  CHECK(is_clean(bench, "disk1"));
}
