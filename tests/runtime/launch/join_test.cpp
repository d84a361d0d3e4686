// Ranks that another launcher has started, by the environments of torchrun, srun and mpirun, set by
// hand. They learn what our own launcher's ranks learn, to the bit; if one of them fails, all
// report the failure.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/launch/external_launcher.h"
#include "tests/support/free_port.h"
#include "tests/support/launched_runs.h"

using namespace shardlens;
using namespace shardlens::tests;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

enum class Environs { torchrun, srun, mpirun };

struct Start {
  Environs environs = Environs::torchrun;
  int world_size = 2;
  int restarts = 0;
  int restarts_of_first = restarts;  // of rank 0, whose agent counts for itself
  std::string port = std::to_string(free_port());
  std::string error_files{};  // "PATH" of rank 1 is "PATH1"

  /// "NAME=value" as the launcher of that name sets them.
  Words variables_of(int rank) const {
    const std::string ranks = std::to_string(world_size), own = std::to_string(rank);
    switch (environs) {
      case Environs::torchrun:
        return {"RANK=" + own,
                "WORLD_SIZE=" + ranks,
                "LOCAL_RANK=" + own,
                "LOCAL_WORLD_SIZE=" + ranks,
                "MASTER_ADDR=127.0.0.1",
                "MASTER_PORT=" + port,
                "TORCHELASTIC_RESTART_COUNT=" +
                    std::to_string(rank == 0 ? restarts_of_first : restarts),
                "TORCHELASTIC_ERROR_FILE=" + (error_files.empty() ? "" : error_files + own)};
      case Environs::srun:
        return {"SLURM_PROCID=" + own,
                "SLURM_NTASKS=" + ranks,
                "SLURM_STEP_NUM_TASKS=" + ranks,
                "SLURM_LOCALID=" + own,
                "SLURM_STEP_TASKS_PER_NODE=" + ranks,
                "SLURM_STEP_ID=0",
                "SLURM_JOB_ID=" + port,
                "SLURM_JOB_NODELIST=localhost",
                "SLURM_RESTART_COUNT=" + std::to_string(restarts)};
      case Environs::mpirun:
        return {"OMPI_COMM_WORLD_RANK=" + own, "OMPI_COMM_WORLD_SIZE=" + ranks,
                "OMPI_COMM_WORLD_LOCAL_RANK=" + own, "OMPI_COMM_WORLD_LOCAL_SIZE=" + ranks,
                "MASTER_PORT=" + port};
    }
    return {};
  }
};

/// Its processes, by rank.
class Ranks {
 public:
  Ranks(const Start& start, const std::function<Words(int rank)>& command) {
    for (int rank = 0; rank < start.world_size; ++rank) {
      Words words = {"/usr/bin/env"};
      for (const std::string& variable : start.variables_of(rank)) words.push_back(variable);
      for (const std::string& word : command(rank)) words.push_back(word);
      processes_.push_back(std::make_unique<Process>(words));
    }
  }
  Ranks(const Start& start, const Words& command) : Ranks(start, [&](int) { return command; }) {}

  void strike(int rank, int signal) const { ::kill(processes_[rank]->pid(), signal); }
  std::vector<ProcessEnd> wait() {
    std::vector<ProcessEnd> ended;
    for (const auto& process : processes_) ended.push_back(process->wait());
    return ended;
  }

 private:
  std::vector<std::unique_ptr<Process>> processes_;
};

/// The ranks that the events of the run call lost; -1 for no rank.
std::vector<int> lost_ranks(const TrainBench& bench) {
  std::vector<int> ranks;
  for (const runtime::RunEvent& event : runtime::read_events(bench.run_file("events.jsonl"))) {
    if (event.kind == "lost") ranks.push_back(event.rank.value_or(-1));
  }
  return ranks;
}

void require_all_well(const std::vector<ProcessEnd>& ranks) {
  for (const ProcessEnd& ended : ranks) {
    INFO(ended.err << ended.out);
    REQUIRE(ended.exit_code == 0);
    CHECK(ended.err.empty());
  }
}

}  // namespace

TEST_CASE("ranks of another launcher learn what our own learn, to the bit", "[join][train]") {
  const Environs environs = GENERATE(Environs::torchrun, Environs::srun, Environs::mpirun);
  const TrainBench bench;
  const Words flags = {"--epochs", "3"};
  Ranks ranks({.environs = environs, .world_size = 3}, bench.command(flags));
  const std::vector<ProcessEnd> ended = ranks.wait();
  require_all_well(ended);
  CHECK_THAT(ended[0].out, ContainsSubstring("has started 3 ranks, 3 of them on this host"));
  CHECK(ended[1].out.empty());  // one speaks for all
  CHECK(weights(bench, "r") == undisturbed(bench, flags, "3"));
  CHECK(bench.result().at("status") == "ok");
  CHECK(fs::exists(bench.run_file("logs/rank2.log")));
}

TEST_CASE("a rank that is killed is named by the others, and the next start goes on", "[join]") {
  const TrainBench bench;
  const Start first;
  Ranks ranks(first, bench.command(kLong));
  REQUIRE(wait_until([&] { return has_checkpoint(bench); }));
  ranks.strike(1, SIGKILL);
  const std::vector<ProcessEnd> ended = ranks.wait();
  INFO(ended[0].err);
  CHECK(ended[0].exit_code == 1);
  CHECK_THAT(ended[0].err, ContainsSubstring("rank 1 no longer responds, last seen in "));
  CHECK(bench.result().at("status") == "failed");

  Ranks again({.restarts = 1, .port = first.port}, bench.command(kLong));
  const std::vector<ProcessEnd> well = again.wait();
  require_all_well(well);
  CHECK_THAT(well[0].out, ContainsSubstring("resumes from step "));
  CHECK(weights(bench, "r") == undisturbed(bench, kLong, "2"));
  CHECK(bench.result().at("restarts") == 1);
  CHECK(told_by_attempt(bench) ==
        Words{"1 started", "1 lost", "2 resumed", "2 restarted", "2 finished"});
  CHECK(lost_ranks(bench) == std::vector<int>{1});
}

TEST_CASE("a rank that is killed while the run opens is named before the deadline", "[join]") {
  const bool is_ended = GENERATE(false, true);  // by its launcher, as rank 0
  const TrainBench bench;
  Ranks ranks({}, [&](int rank) {  // rank 1 waits for what rank 0 has written elsewhere
    return bench.command({"--fresh", "--storage", bench.file(rank == 0 ? "runs" : "elsewhere")});
  });
  // With --fresh the attempt begins when all have joined.
  REQUIRE(wait_until([&] { return fs::exists(bench.run_file("events.jsonl")); }));
  ranks.strike(is_ended ? 0 : 1, is_ended ? SIGTERM : SIGKILL);
  const ProcessEnd ended = ranks.wait()[0];
  CAPTURE(is_ended, ended.err);
  CHECK(ended.exit_code == 1);
  CHECK(ended.seconds < 20);  // the deadline is 60 s
  CHECK(told_by_attempt(bench) == Words{"1 started", is_ended ? "1 interrupted" : "1 lost"});
  CHECK(bench.result().at("status") == "failed");
  if (is_ended) return;
  CHECK_THAT(ended.err, ContainsSubstring("rank 1 no longer responds, last seen in starting"));
  CHECK(lost_ranks(bench) == std::vector<int>{1});
}

TEST_CASE("a rank that is ended while it waits says for whom", "[join]") {
  const TrainBench bench;
  const Words command = bench.command({});
  Ranks ranks({}, [&](int rank) { return rank == 0 ? command : Words{"/bin/true"}; });
  REQUIRE(wait_until([&] { return fs::exists(bench.run_file("events.jsonl")); }));
  ranks.strike(0, SIGTERM);
  const std::string said =
      "rank 0 was ended by signal 15 while it waited for rank 1, which has not joined";
  CHECK_THAT(ranks.wait()[0].err, ContainsSubstring(said));
  const auto events = runtime::read_events(bench.run_file("events.jsonl"));
  CHECK(events.back().kind == "interrupted");
  CHECK(events.back().text == said);
}

TEST_CASE("the ranks that are left record that rank 0 is gone", "[join]") {
  const int world_size = GENERATE(2, 4);
  const TrainBench bench;
  Ranks ranks({.world_size = world_size}, bench.command(kLong + Words{"--batch", "4"}));
  REQUIRE(wait_until([&] { return has_checkpoint(bench); }));
  ranks.strike(0, SIGKILL);
  const std::vector<ProcessEnd> ended = ranks.wait();
  for (int rank = 1; rank < world_size; ++rank) {
    CAPTURE(rank, ended[rank].err);
    CHECK(ended[rank].exit_code == 1);
    CHECK_THAT(ended[rank].err, ContainsSubstring(" no longer responds, last seen in "));
  }
  CHECK(told_by_attempt(bench) == Words{"1 started", "1 lost"});  // one speaks for all
  CHECK(lost_ranks(bench) == std::vector<int>{0});
  CHECK(bench.result().at("status") == "failed");
}

TEST_CASE("the next attempt records one that ended without a word", "[join]") {
  const TrainBench bench;
  const Start first;
  Ranks ranks(first, bench.command(kLong));
  REQUIRE(wait_until([&] { return has_checkpoint(bench); }));
  for (const int rank : {0, 1}) ranks.strike(rank, SIGSTOP);
  for (const int rank : {0, 1}) ranks.strike(rank, SIGKILL);
  ranks.wait();
  const auto logged = static_cast<int64_t>(bench.losses().size());
  CHECK(told_by_attempt(bench) == Words{"1 started"});
  Ranks again({.restarts = 1, .port = first.port}, bench.command(kLong));
  require_all_well(again.wait());
  CHECK(told_by_attempt(bench) ==
        Words{"1 started", "1 lost", "2 resumed", "2 restarted", "2 finished"});
  CHECK(runtime::read_events(bench.run_file("events.jsonl"))[1].step == logged);
  CHECK(lost_ranks(bench) == std::vector<int>{-1});
}

// An agent, a slurmstepd or a worker that is killed takes the pipes with it from which it reads
// what its rank prints.
TEST_CASE("a failure is recorded although no process reads what the rank prints", "[join]") {
  const TrainBench bench;
  const std::string pipe = bench.file("pipe");
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  Ranks ranks({.error_files = bench.file("error")}, [&](int rank) {
    const Words into_pipe = {"/bin/bash", "-c", "exec \"$@\" >" + pipe + " 2>&1", "bash"};
    return (rank == 0 ? into_pipe : Words{}) + bench.command(kLong);
  });
  REQUIRE(wait_until([&] { return has_checkpoint(bench); }));
  ::close(reader);
  ranks.strike(1, SIGKILL);
  CHECK(ranks.wait()[0].exit_code == 1);
  CHECK(told_by_attempt(bench) == Words{"1 started", "1 lost"});
  CHECK(lost_ranks(bench) == std::vector<int>{1});
  CHECK(bench.result().at("status") == "failed");
  CHECK(fs::exists(bench.run_file("logs/actions-rank0.txt")));
  CHECK_THAT(read_file(bench.file("error0")), ContainsSubstring("rank 1 no longer responds"));
}

// An agent of torchrun that replaces another counts restarts from 0; the one that stayed has 1.
TEST_CASE("a replaced agent of torchrun costs no deadline", "[join]") {
  const int of_first = GENERATE(0, 1);
  const TrainBench bench;
  const Start first;
  const Words flags = kLong + Words{"--fresh"};
  Ranks ranks(first, bench.command(flags));
  REQUIRE(wait_until([&] { return has_checkpoint(bench); }));
  ranks.strike(1 - of_first, SIGKILL);
  CHECK(ranks.wait()[of_first].exit_code == 1);
  Ranks again({.restarts = 1 - of_first, .restarts_of_first = of_first, .port = first.port},
              bench.command(flags));
  const std::vector<ProcessEnd> ended = again.wait();
  require_all_well(ended);
  CHECK(ended[0].seconds < 15);  // --timeout is 20
  CHECK_THAT(ended[0].out, ContainsSubstring("resumes from step "));
  CHECK(weights(bench, "r") == undisturbed(bench, kLong, "2"));
  CHECK(std::ranges::count(told_by_attempt(bench), "2 restarted") == 1);
}

TEST_CASE("a rank that is stopped is named at the deadline", "[join]") {
  const TrainBench bench;
  const Words flags = {"--epochs", "400", "--checkpoint-every", "20", "--timeout", "3"};
  Ranks ranks({}, bench.command(flags));
  REQUIRE(wait_until([&] { return has_checkpoint(bench); }));
  ranks.strike(1, SIGSTOP);
  // The launcher would wait for the stopped one without end.
  REQUIRE(wait_until([&] { return fs::exists(bench.run_file("result.json")); }));
  ranks.strike(1, SIGKILL);
  const std::vector<ProcessEnd> ended = ranks.wait();
  INFO(ended[0].err);
  CHECK(ended[0].exit_code == 1);
  CHECK(ended[0].seconds < 30);
  CHECK_THAT(ended[0].err, ContainsSubstring("rank 1 no longer responds, last seen in "));
}

TEST_CASE("the first failure is reported by every rank, and to torchrun", "[join]") {
  const TrainBench bench;
  const Start start{.world_size = 3, .error_files = bench.file("error")};
  Ranks ranks(start, [&](int rank) {
    return bench.command({"--epochs", rank == 1 ? "3" : "2", "--timeout", "20"});
  });
  const std::vector<ProcessEnd> ended = ranks.wait();
  for (int rank = 0; rank < 3; ++rank) {
    CAPTURE(rank, ended[rank].err);
    CHECK(ended[rank].exit_code == 2);
    CHECK(std::count(ended[rank].err.begin(), ended[rank].err.end(), '\n') == 1);
    CHECK(ended[rank].err == ended[0].err);
    CHECK_THAT(ended[rank].err, ContainsSubstring("was started with --epochs"));
    const auto told = nlohmann::json::parse(read_file(bench.file("error" + std::to_string(rank))));
    const std::string message = told.at("message").at("message");
    CHECK("shardlens train: " + message + "\n" == ended[rank].err);
    CHECK(std::stoll(told["message"]["extraInfo"]["timestamp"].get<std::string>()) > 1'600'000'000);
  }
}

TEST_CASE("a host that does not see rank 0's folder is refused", "[join]") {
  const TrainBench bench;
  Ranks ranks({}, [&](int rank) {
    return bench.command(
        {"--timeout", "3", "--storage", bench.file(rank == 0 ? "runs" : "elsewhere")});
  });
  for (const ProcessEnd& ended : ranks.wait()) {
    CHECK(ended.exit_code == 2);
    CHECK_THAT(ended.err, ContainsSubstring("rank 1 on ") &&
                              ContainsSubstring("give a folder that all hosts share"));
  }
  CHECK_FALSE(fs::exists(bench.file("elsewhere")));
}

TEST_CASE("a run without a name gets one from rank 0", "[join]") {
  const TrainBench bench;
  Words command = bench.command({"--steps", "2"});
  const auto name = std::find(command.begin(), command.end(), "--name");
  command.erase(name, name + 2);
  Ranks ranks({.environs = Environs::mpirun}, command);
  require_all_well(ranks.wait());
  Ranks in_slurm({.environs = Environs::srun, .port = "815"}, command);
  require_all_well(in_slurm.wait());
  CHECK(fs::exists(bench.file("runs/tiny-fsdp-slurm-815/logs/rank1.log")));
  const auto runs = fs::directory_iterator(bench.file("runs"));
  CHECK(std::distance(fs::begin(runs), fs::end(runs)) == 2);
}

TEST_CASE("the others stop waiting for a rank that does not come", "[join]") {
  const TrainBench bench;
  const Words command = bench.command({"--timeout", "2"});
  Ranks ranks({}, [&](int rank) { return rank == 0 ? command : Words{"/bin/true"}; });
  const ProcessEnd ended = ranks.wait()[0];
  CHECK(ended.exit_code == 1);
  CHECK_THAT(ended.err, ContainsSubstring("rank 1 did not see the run's folder in time"));
  CHECK(ended.seconds < 20);
  Ranks without_first({}, [&](int rank) { return rank == 1 ? command : Words{"/bin/true"}; });
  const ProcessEnd alone = without_first.wait()[1];
  CHECK(alone.exit_code == 1);
  CHECK_THAT(alone.err, ContainsSubstring("rank 1 could not reach the rendezvous store at "));
}

TEST_CASE("the next start may have another number of ranks", "[join]") {
  const TrainBench bench;
  const Start first;
  Ranks two(first, bench.command(kLong));
  REQUIRE(wait_until([&] { return has_checkpoint(bench); }));
  two.strike(0, SIGKILL);
  CHECK(two.wait()[1].exit_code == 1);
  Ranks four({.world_size = 4, .restarts = 1, .port = first.port}, bench.command(kLong));
  const std::vector<ProcessEnd> ended = four.wait();
  require_all_well(ended);
  CHECK_THAT(ended[0].out, ContainsSubstring("--batch 4 (was 8): 4 ranks keep the batch of 16") &&
                               ContainsSubstring("resumes from step "));
  // With the same samples, summed in another order.
  bench.train(kLong + Words{"--workers", "2", "--name", "s"});
  const auto other = nlohmann::json::parse(read_file(bench.file("runs/s/result.json")));
  CHECK(std::abs(bench.result().at("train_loss").get<double>() -
                 other.at("train_loss").get<double>()) < 1e-3);
  Ranks three({.world_size = 3, .restarts = 1}, bench.command(kLong + Words{"--name", "s"}));
  for (const ProcessEnd& refused : three.wait()) {
    CHECK(refused.exit_code == 2);
    CHECK_THAT(refused.err, ContainsSubstring("cannot be divided evenly"));
  }
}

TEST_CASE("flags that contradict another launcher are refused", "[join]") {
  const runtime::Membership place{.launcher = runtime::LauncherKind::torchrun,
                                  .rank = 1,
                                  .world_size = 2,
                                  .local_world_size = 2,
                                  .may_restart = true};
  const auto refusal = [&](const std::function<void(planner::Config&)>& change) -> std::string {
    planner::Config config;
    config.device = device_named("cpu");
    config.name = "r";
    change(config);
    try {
      runtime::config_under_launcher(config, place);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  CHECK(refusal([](auto&) {}) == "accepted");
  CHECK(refusal([](auto& config) { config.workers = 2; }) == "accepted");
  CHECK_THAT(refusal([](auto& config) { config.workers = 3; }),
             ContainsSubstring("--workers 3: this is rank 1 of 2 started by torchrun"));
  CHECK_THAT(
      refusal([](auto& config) { config.communicator = planner::CommunicatorChoice::local; }),
      ContainsSubstring("share no memory"));
  CHECK(refusal([](auto& config) { config.device = device_named("null:h200"); }) == "accepted");
  CHECK_THAT(refusal([](auto& config) { config.solo_rank = 0; }), ContainsSubstring("--solo-rank"));
  CHECK_THAT(refusal([](auto& config) { config.name = ""; }), ContainsSubstring("--name"));
}

TEST_CASE("a batch job that learns of its end saves, and goes on when its turn comes", "[join]") {
  const TrainBench bench;
  const std::string sources = SHARDLENS_SOURCE_DIR, port = std::to_string(free_port());
  Words flags = bench.command(kLong);
  flags.erase(flags.begin());  // the program
  const auto job = [&](int restarts) {
    return Words{"/usr/bin/env",
                 "PATH=" + sources + "/tests/support/fake_slurm:/usr/bin:/bin",
                 "FAKE_TASKS=2",
                 "FAKE_ASKED=" + bench.file("asked"),
                 "SHARDLENS=" + std::string(SHARDLENS),
                 "SLURM_JOB_ID=" + port,
                 "SLURM_RESTART_COUNT=" + std::to_string(restarts),
                 sources + "/tests/examples/train.sbatch"} +
           flags;
  };
  Process batch(job(0));
  REQUIRE(wait_until([&] { return has_checkpoint(bench); }));
  const std::vector<pid_t> steps = batch.children();  // srun
  REQUIRE(steps.size() == 1);
  ::kill(steps.front(), SIGTERM);
  const ProcessEnd first = batch.wait();
  INFO(first.err << first.out);
  CHECK(first.exit_code == 0);
  CHECK_THAT(first.out, ContainsSubstring("preempted after step "));
  CHECK(read_file(bench.file("asked")) == "requeue " + port + "\n");
  CHECK(bench.result().at("status") == "preempted");
  CHECK(told_by_attempt(bench) == Words{"1 started", "1 preempted"});
  const int64_t saved = bench.result().at("steps");
  CHECK(fs::exists(bench.run_file("checkpoints/step-" +
                                  std::string(8 - std::to_string(saved).size(), '0') +
                                  std::to_string(saved))));

  const ProcessEnd second = run(job(1));
  INFO(second.err);
  CHECK(second.exit_code == 0);
  CHECK_THAT(second.out, ContainsSubstring("resumes from step " + std::to_string(saved) + " of "));
  CHECK(bench.result().at("status") == "ok");
  CHECK(weights(bench, "r") == undisturbed(bench, kLong, "2"));
}

TEST_CASE("ranks of another launcher train on the null device, too", "[join][null]") {
  const TrainBench bench;
  const Words command = {"SHARDLENS_NULL_CHECK=1",
                         SHARDLENS_TRAIN,
                         "--device",
                         "null:h200",
                         "--data",
                         "synthetic",
                         "--steps",
                         "3",
                         "--storage",
                         bench.file("runs"),
                         "--name"};
  Ranks ranks({.world_size = 3}, command + Words{"r"});
  require_all_well(ranks.wait());
  const ProcessEnd ours = run(Words{"/usr/bin/env"} + command + Words{"ours", "--workers", "3"});
  REQUIRE(ours.exit_code == 0);
  const auto result = nlohmann::json::parse(read_file(bench.file("runs/ours/result.json")));
  CHECK(bench.result().at("memory") == result.at("memory"));
}

TEST_CASE("a rank of another launcher that runs out of memory shows what held it", "[join][null]") {
  const TrainBench bench;
  Ranks ranks({}, too_much(bench));
  const std::vector<ProcessEnd> ended = ranks.wait();
  const bool is_first = ended[0].err.starts_with("shardlens train: rank 0 ");
  const ProcessEnd& blamed = ended[is_first ? 0 : 1];
  INFO(blamed.err);
  CHECK(blamed.exit_code == 1);
  const size_t at = blamed.err.find("\nrank ");
  REQUIRE(at != std::string::npos);
  const std::string screen = blamed.err.substr(at + 1);
  CHECK_THAT(screen, ContainsSubstring("out of memory: ") && ContainsSubstring("FORWARD") &&
                         ContainsSubstring("would have fit"));
  const ProcessEnd report = run({SHARDLENS_PROFILE, "report", bench.run_file("")});
  CHECK_THAT(report.out, ContainsSubstring(screen.substr(screen.find('\n'))));
  const std::string& other = ended[is_first ? 1 : 0].err;
  CHECK(other == blamed.err.substr(0, at));  // it says nothing else
}

TEST_CASE("two hosts train over a network, and say so when its cable is pulled", "[join][long]") {
  const Words unshare = {"/usr/bin/unshare", "--map-root-user", "--net"};
  if (run(unshare + Words{"/usr/bin/env", "ip", "link", "add", "host0", "type", "veth"})
          .exit_code != 0)
    SKIP("network namespaces and `ip` are needed");
  const TrainBench bench;
  const auto two_hosts = [&](const std::string& cut, const Words& flags) {
    return unshare + Words{SHARDLENS_SOURCE_DIR "/tests/support/two_hosts.sh", bench.file(cut)} +
           bench.command(flags);
  };
  const Words flags = {"--epochs", "40", "--checkpoint-every", "40", "--timeout", "5"};
  Process cut(two_hosts("cut", flags));
  REQUIRE(wait_until([&] { return has_checkpoint(bench); }));
  write_file(bench.file("cut"), "");
  const ProcessEnd ended = cut.wait();
  INFO(ended.err << ended.out);
  CHECK(ended.exit_code == 1);
  CHECK(ended.seconds < 60);
  CHECK_THAT(ended.out,
             ContainsSubstring("a launcher has started 2 ranks, 1 of them on this host"));
  CHECK_THAT(ended.err, ContainsSubstring("shardlens train: rank "));
  CHECK(bench.result().at("status") == "failed");

  const ProcessEnd again = run(two_hosts("never", flags));
  INFO(again.err);
  CHECK(again.exit_code == 0);
  CHECK_THAT(again.out, ContainsSubstring("resumes from step "));
  CHECK(weights(bench, "r") == undisturbed(bench, flags, "2"));
}
