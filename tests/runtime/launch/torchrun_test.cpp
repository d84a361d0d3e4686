// Uses torchrun itself, if PyTorch is installed: its agents start our ranks, restart them, and lose
// and gain nodes.
#include <signal.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/engine_rows.h"
#include "tests/support/free_port.h"
#include "tests/support/launched_runs.h"
#include "tests/support/torchrun.h"

using namespace shardlens::tests;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr const char* kTorchrun = "torchrun";

/// Ends torchrun as a scheduler would; its ranks save.
void preempt(const TrainBench& bench, Process& agent) {
  const Strike strike = strike_now(bench);
  ::kill(agent.pid(), SIGTERM);
  const ProcessEnd ended = agent.wait();
  INFO(ended.out << ended.err);
  REQUIRE(bench.result().at("status") == "preempted");
  check_comes(bench, kTorchrun, "cancelled", strike, "preempted");
}

/// An agent of torchrun that others may join and leave; one of them serves the store in which all
/// meet.
Words elastic_agent(const std::string& port, bool serves, const std::string& last_call_s,
                    const Words& variables = {}) {
  const std::string meeting = std::string("is_host=") + (serves ? "true" : "false") +
                              ",keep_alive_interval=1,keep_alive_max_attempt=10," +
                              "last_call_timeout=" + last_call_s;
  return torchrun(Words{"--nnodes", "1:2", "--nproc-per-node", "1", "--max-restarts", "1"} +
                      Words{"--rdzv-backend", "c10d", "--rdzv-id", "e", "--rdzv-endpoint",
                            "127.0.0.1:" + port, "--rdzv-conf", meeting} +
                      Words{"--monitor-interval", "0.1"},
                  variables);
}

}  // namespace

TEST_CASE("torchrun starts ranks, with one agent and with two", "[join][peers]") {
  SKIP_WITHOUT_TORCHRUN();
  const TrainBench bench;
  const Words flags = {"--epochs", "3"};
  const std::string expected = undisturbed(bench, flags, "2");
  const Strike begin = strike_now(bench);
  const ProcessEnd one =
      run(torchrun({"--standalone", "--nproc-per-node", "2"}) + bench.command(flags));
  INFO(one.err);
  REQUIRE(one.exit_code == 0);
  check_comes(bench, kTorchrun, "start", begin, "started");
  CHECK_THAT(one.out, ContainsSubstring("torchrun has started 2 ranks, 2 of them on this host"));
  CHECK(weights(bench, "r") == expected);

  const std::string port = std::to_string(free_port());
  std::vector<std::unique_ptr<Process>> agents;
  for (int node = 0; node < 2; ++node) {
    agents.push_back(std::make_unique<Process>(torchrun_agent(node, 2, port) +
                                               bench.command(flags + Words{"--name", "two"})));
  }
  for (const auto& agent : agents) {
    const ProcessEnd ended = agent->wait();
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
  }
  CHECK(weights(bench, "two") == expected);
}

TEST_CASE("torchrun starts ranks again that go on from the checkpoint", "[join][peers]") {
  SKIP_WITHOUT_TORCHRUN();
  const TrainBench bench;
  Process agent(torchrun({"--standalone", "--nproc-per-node", "2", "--max-restarts", "1",
                          "--monitor-interval", "0.1"}) +
                bench.command(kLong));
  REQUIRE(wait_until([&] { return has_checkpoint(bench); }));
  const std::vector<pid_t> ranks = agent.children();
  REQUIRE(ranks.size() >= 2);
  const Strike strike = strike_now(bench);
  ::kill(ranks.back(), SIGKILL);
  const ProcessEnd ended = agent.wait();
  INFO(ended.err);
  REQUIRE(ended.exit_code == 0);
  CHECK_THAT(ended.out, ContainsSubstring("resumes from step "));
  check_comes(bench, kTorchrun, "rank 1 killed", strike, "resumed");
  CHECK(weights(bench, "r") == undisturbed(bench, kLong, "2"));
}

TEST_CASE("torchrun's report has the reason of the first failure", "[join][peers]") {
  SKIP_WITHOUT_TORCHRUN();
  const TrainBench bench;
  const Strike begin = strike_now(bench);
  const ProcessEnd ended =
      run(torchrun({"--standalone", "--nproc-per-node", "2"}) + bench.command({"--batch", "4096"}));
  keep_engine_row(kTorchrun, "wrong use", begin, strike_now(bench).time, {});
  CHECK(ended.exit_code == 1);
  CHECK_THAT(ended.err,
             ContainsSubstring("Root Cause") && ContainsSubstring("traceback : --batch 4096"));
}

TEST_CASE("under torchrun, out of memory shows what held it", "[join][null][peers]") {
  SKIP_WITHOUT_TORCHRUN();
  const TrainBench bench;
  const ProcessEnd ended =
      run(torchrun({"--standalone", "--nproc-per-node", "2"}) + too_much(bench));
  CHECK(ended.exit_code == 1);
  CHECK_THAT(ended.err, ContainsSubstring(" ran out of memory on null:h200 in ") &&
                            ContainsSubstring("  out of memory: ") &&
                            ContainsSubstring("largest free block"));
}

TEST_CASE("another torchrun goes on with more ranks, and one with fewer", "[join][peers]") {
  SKIP_WITHOUT_TORCHRUN();
  const TrainBench bench;
  undisturbed(bench, kLong, "2");
  const std::vector<double> expected = bench.losses("undisturbed");
  std::vector<size_t> resumed;
  for (const char* ranks : {"2", "4", "1"}) {
    const size_t before = bench.losses().size();
    if (before > 0) resumed.push_back(before);
    Process agent(torchrun({"--standalone", "--nproc-per-node", ranks}) + bench.command(kLong));
    if (ranks != std::string("1")) {
      REQUIRE(wait_until([&] { return bench.losses().size() > before + 20; }));
      preempt(bench, agent);
      continue;
    }
    const ProcessEnd ended = agent.wait();
    INFO(ended.err);
    REQUIRE(ended.exit_code == 0);
    CHECK_THAT(ended.out, ContainsSubstring("--batch 16 (was 8): 1 rank keeps the batch of 16"));
  }
  CHECK(bench.result().at("status") == "ok");
  const std::vector<double> losses = bench.losses();
  REQUIRE(losses.size() == expected.size());
  REQUIRE(resumed.size() == 2);
  for (size_t step = 0; step < losses.size(); ++step) {
    CAPTURE(step, resumed);
    if (step < resumed[0]) CHECK(losses[step] == expected[step]);
    if (step < resumed[0] + 10) CHECK(std::abs(losses[step] - expected[step]) < 1e-5);
    CHECK(std::abs(losses[step] - expected[step]) < 1e-3);
  }
}

TEST_CASE("a run goes on if torchrun loses a node", "[join][peers][long]") {
  SKIP_WITHOUT_TORCHRUN();
  const TrainBench bench;
  const std::string port = std::to_string(free_port());
  const Words command = bench.command(kLong);
  Process stays(elastic_agent(port, true, "20") + command);
  auto lost = std::make_unique<Process>(elastic_agent(port, false, "20") + command);
  REQUIRE(wait_until([&] { return has_checkpoint(bench); }));
  const std::vector<pid_t> ranks = lost->children();
  REQUIRE(ranks.size() >= 1);
  const Strike strike = strike_now(bench);
  ::kill(lost->pid(), SIGKILL);
  ::kill(ranks.back(), SIGKILL);
  const ProcessEnd ended = stays.wait();
  INFO(ended.err << ended.out);
  REQUIRE(ended.exit_code == 0);
  check_comes(bench, kTorchrun, "node lost", strike, "resumed");
  CHECK_THAT(ended.out, ContainsSubstring("--batch 16 (was 8): 1 rank keeps the batch of 16") &&
                            ContainsSubstring("resumes from step "));
  undisturbed(bench, kLong, "2");
  const std::vector<double> losses = bench.losses();
  const std::vector<double> expected = bench.losses("undisturbed");
  REQUIRE(losses.size() == expected.size());
  for (size_t step = 0; step < losses.size(); ++step) {
    CAPTURE(step);
    CHECK(std::abs(losses[step] - expected[step]) < (step < 50 ? 1e-5 : 1e-3));
  }
}

// The agent that stayed has counted a restart; the one that replaces the other counts from 0.
TEST_CASE("a run goes on if an agent of torchrun is replaced", "[join][peers][long]") {
  SKIP_WITHOUT_TORCHRUN();
  const TrainBench bench;
  const std::string port = std::to_string(free_port());
  const Words flags = {"--epochs", "100000", "--checkpoint-every", "40", "--timeout", "60"};
  const Words apart = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"};
  Process stays(elastic_agent(port, true, "20", apart) + bench.command(flags));
  auto lost =
      std::make_unique<Process>(elastic_agent(port, false, "20", apart) + bench.command(flags));
  REQUIRE(wait_until([&] { return has_checkpoint(bench); }));
  const std::vector<pid_t> ranks = lost->children();
  REQUIRE(ranks.size() >= 1);
  ::kill(lost->pid(), SIGKILL);
  ::kill(ranks.back(), SIGKILL);
  lost.reset();
  Process replaced(elastic_agent(port, false, "20", apart) + bench.command(flags));
  const Strike strike = strike_now(bench);
  const auto begin = std::chrono::steady_clock::now();
  REQUIRE(wait_until([&] { return told_by_attempt(bench).size() > 3; }));
  check_comes(bench, kTorchrun, "node replaced", strike, "resumed");
  const size_t before = bench.losses().size();
  REQUIRE(wait_until([&] { return bench.losses().size() >= before + 20; }));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(45));  // --timeout is 60
  ::kill(stays.pid(), SIGTERM);
  ::kill(replaced.pid(), SIGTERM);
  const ProcessEnd one = stays.wait(), other = replaced.wait();
  INFO(one.out << one.err << other.out << other.err);
  const Words events = told_by_attempt(bench);
  REQUIRE(events.size() >= 4);
  CHECK(Words(events.begin(), events.begin() + 4) ==
        Words{"1 started", "1 lost", "2 resumed", "2 restarted"});
  CHECK_THAT(one.out + other.out, !ContainsSubstring("keeps the batch"));  // there were two ranks
}

// Agents of PyTorch 2.11 to 2.15 wait for each other without end if a node joins while they share
// their store with the ranks; the variable prevents that.
TEST_CASE("a run goes on if a node joins torchrun", "[join][peers][long]") {
  SKIP_WITHOUT_TORCHRUN();
  const TrainBench bench;
  const std::string port = std::to_string(free_port());
  const Words flags = {"--epochs", "100000", "--timeout", "20"};
  const Words apart = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"};
  Process first(elastic_agent(port, true, "1", apart) + bench.command(flags));
  REQUIRE(wait_until([&] { return has_checkpoint(bench); }));
  const Strike strike = strike_now(bench);
  Process second(elastic_agent(port, false, "1", apart) + bench.command(flags));
  REQUIRE(wait_until([&] { return told_by_attempt(bench).size() > 2; }));
  check_comes(bench, kTorchrun, "node added", strike, "resumed");
  const size_t before = bench.losses().size();
  REQUIRE(wait_until([&] { return bench.losses().size() >= before + 20; }));
  ::kill(first.pid(), SIGTERM);
  ::kill(second.pid(), SIGTERM);
  const ProcessEnd one = first.wait(), other = second.wait();
  INFO(one.out << one.err << other.out << other.err);
  const Words events = told_by_attempt(bench);
  REQUIRE(events.size() >= 3);
  CHECK(Words(events.begin(), events.begin() + 3) ==
        Words{"1 started", "1 preempted", "2 resumed"});
  const std::string out = one.out + other.out;
  CHECK_THAT(out, ContainsSubstring("--batch 4 (was 8): 2 ranks keep the batch of 8 in all"));
  const std::string words = "resumes from step ";
  REQUIRE(out.find(words) != std::string::npos);
  const size_t resumed = std::stoul(out.substr(out.find(words) + words.size()));

  const ProcessEnd alone = bench.train(
      Words{"--name", "alone", "--epochs", "100000", "--steps", std::to_string(resumed + 10)});
  INFO(alone.err);
  const std::vector<double> losses = bench.losses(), expected = bench.losses("alone");
  REQUIRE(losses.size() >= resumed + 10);
  REQUIRE(expected.size() == resumed + 10);
  for (size_t step = 0; step < expected.size(); ++step) {
    CAPTURE(step, resumed);
    if (step < resumed) CHECK(losses[step] == expected[step]);
    CHECK(std::abs(losses[step] - expected[step]) < 1e-5);
  }
}
