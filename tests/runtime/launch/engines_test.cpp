// Slurm, Open MPI and MPICH themselves, if they are installed: two nodes on this machine, in
// namespaces of their own (tests/support/engines). Ranks are killed, nodes are lost, jobs are
// preempted and requeued, and the run must end with the weights of an undisturbed one, to the bit.
// A case is a script, since its processes are in a namespace; it strikes, and the test judges.
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "runtime/launch/events.h"
#include "tests/support/engine_rows.h"
#include "tests/support/launched_runs.h"
#include "tests/support/torchrun.h"

using namespace shardlens;
using namespace shardlens::tests;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

const std::string kEngines = SHARDLENS_SOURCE_DIR "/tests/support/engines";

/// Long enough to be struck by a scheduler, which takes seconds: 800 steps.
const Words kLonger = {"--epochs", "200", "--checkpoint-every", "40", "--timeout", "20"};

/// Returns why a case cannot run here; empty: it can.
std::string why_not(const Words& programs) {
  if (::geteuid() != 0) return "root is needed";
  Words words = {"/bin/bash", "-c", "for p; do type -P $p || exit; done", "bash", "ip", "unshare"};
  if (run(words + programs).exit_code != 0) return "not installed: " + programs.front();
  const bool has_namespaces = run({"/usr/bin/unshare", "--mount", "--net", "--uts", "--pid",
                                   "--fork", "--kill-child", "--mount-proc", "/bin/true"})
                                  .exit_code == 0;
  return has_namespaces ? "" : "namespaces are not allowed here";
}

#define SKIP_WITHOUT(...) \
  if (const std::string why = why_not(Words{__VA_ARGS__}); !why.empty()) SKIP(why)
#define SKIP_WITHOUT_SLURM() \
  SKIP_WITHOUT("slurmctld", "slurmd", "srun", "sbatch", "munged", "scontrol")

/// Runs the script as the only user of a machine with the hosts n0 and n1. Its arguments are the
/// command of a rank.
ProcessEnd on_hosts(const TrainBench& bench, const Words& wrapper, const std::string& script,
                    const Words& command) {
  const Words variables = {"/usr/bin/env", "RUN=" + bench.file("runs/r"), "ENGINES=" + kEngines,
                           "SHARDLENS=" + std::string(SHARDLENS),
                           "BATCH=" SHARDLENS_SOURCE_DIR "/tests/examples/train.sbatch"};
  fs::remove_all(bench.file("machine"));
  fs::create_directories(bench.file("machine/slurm"));
  return run(variables + Words{kEngines + "/hosts.sh", bench.file("machine")} + wrapper +
             Words{"/bin/bash", "-euc",
                   "cd " + bench.file("machine") + "; . $ENGINES/cases.sh; " + script, "bash"} +
             command);
}

ProcessEnd in_slurm(const TrainBench& bench, const std::string& script, const Words& command) {
  return on_hosts(bench, {kEngines + "/slurm.sh", bench.file("machine/slurm")}, script, command);
}

/// Runs a script that submits the documented batch job as `job`, and strikes it.
ProcessEnd in_batch(const TrainBench& bench, const std::string& script, const Words& flags,
                    const std::string& options = "--time=10") {
  Words command = bench.command(flags);
  command.erase(command.begin());  // the batch job names the program
  const std::string submit =
      "note_strike; job=$(sbatch --parsable --nodes=2 --ntasks-per-node=1 --output=out " + options +
      " $BATCH \"$@\"); trap 'cat out' EXIT; ";
  return in_slurm(bench, submit + script, command);
}

ProcessEnd on_mpi(const TrainBench& bench, const std::string& script, const Words& command) {
  const std::string variables =
      "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
      "OMPI_MCA_oob_tcp_if_include=lo; ";
  return on_hosts(bench, {}, variables + script, command);
}

constexpr const char* kSlurm = "Slurm, train.sbatch";

std::string name_of_mpi(const std::string& mpirun) {
  return mpirun == "mpirun.openmpi" ? "Open MPI, mpirun" : "MPICH, mpirun";
}

/// Describes an event: "GENERATION kind", and the rank if it names one.
Words told(const TrainBench& bench) {
  Words events;
  for (const runtime::RunEvent& event : runtime::read_events(bench.run_file("events.jsonl"))) {
    events.push_back(std::to_string(event.generation) + " " + event.kind +
                     (event.rank ? " of " + std::to_string(*event.rank) : ""));
  }
  return events;
}

void require_well(const ProcessEnd& ended) {
  INFO(ended.out << ended.err);
  REQUIRE(ended.exit_code == 0);
}

}  // namespace

TEST_CASE("srun starts ranks on two nodes", "[join][engines]") {
  SKIP_WITHOUT_SLURM();
  const TrainBench bench;
  const Words flags = {"--epochs", "3"};
  const ProcessEnd ended =
      in_slurm(bench, R"(note_strike; srun --nodes=2 --ntasks=3 "$@")", bench.command(flags));
  require_well(ended);
  check_comes(bench, "Slurm, srun", "start", noted_strike(bench), "started");
  CHECK_THAT(ended.out, ContainsSubstring("srun has started 3 ranks, 2 of them on this host"));
  CHECK(weights(bench, "r") == undisturbed(bench, flags, "3"));
}

TEST_CASE("two steps of one allocation are two runs", "[join][engines][long]") {
  SKIP_WITHOUT_SLURM();
  const TrainBench bench;
  Words command = bench.command({"--steps", "3"});
  const auto name = std::find(command.begin(), command.end(), "--name");
  command.erase(name, name + 2);
  const ProcessEnd ended = in_slurm(
      bench, R"(salloc --nodes=2 --ntasks=2 bash -ec 'srun "$@"; srun "$@"' bash "$@")", command);
  require_well(ended);
  for (const char* run : {"tiny-fsdp-slurm-1", "tiny-fsdp-slurm-1.1"}) {
    CHECK(fs::exists(bench.file("runs/" + std::string(run) + "/result.json")));
  }
}

TEST_CASE("a batch job starts a killed rank again", "[join][engines][long]") {
  SKIP_WITHOUT_SLURM();
  const std::string rank = GENERATE("0", "1");
  const TrainBench bench;
  const ProcessEnd ended =
      in_batch(bench, "wait_saved; note_strike; kill_rank " + rank + R"( SLURM_PROCID
      wait_job $job 'COMPLETED|FAILED' 120; job_is $job COMPLETED; job_field $job Restarts)",
               kLong);
  require_well(ended);
  INFO(ended.out);
  CHECK_THAT(ended.out, ContainsSubstring("0\n"));  // in the same allocation
  check_comes(bench, kSlurm, "rank " + rank + " killed", noted_strike(bench), "resumed");
  CHECK(told(bench) == Words{"1 started", "1 lost of " + rank, "2 resumed", "2 finished"});
  CHECK(weights(bench, "r") == undisturbed(bench, kLong, "2"));
}

TEST_CASE("a batch job that fails each time, or is wrong, ends", "[join][engines][long]") {
  SKIP_WITHOUT_SLURM();
  const std::string end = "wait_job $job 'COMPLETED|FAILED' 120; job_field $job ExitCode; ";
  const TrainBench bench;
  const ProcessEnd wrong = in_batch(bench, end + "note_end; ", {"--lr", "minus"});
  require_well(wrong);
  CHECK(wrong.out.starts_with("2:0\n"));
  keep_engine_row(kSlurm, "wrong use", noted_strike(bench), noted_end(bench), {});
  CHECK_FALSE(fs::exists(bench.run_file("")));
  const ProcessEnd failing = in_batch(bench, R"(for attempt in 1 2; do
        wait_until 60 grep -q "\"generation\":$attempt" $RUN/events.jsonl
        wait_saved; kill_rank 1 SLURM_PROCID
      done; )" + end,
                                      {"--epochs", "100000", "--checkpoint-every", "40"},
                                      "--export=ALL,SHARDLENS_MAX_FAILURES=1");
  require_well(failing);
  CHECK(failing.out.starts_with("137:0\n"));
}

TEST_CASE("a preempted batch job saves, and goes on when its turn comes", "[join][engines][long]") {
  SKIP_WITHOUT_SLURM();
  const TrainBench bench;
  const ProcessEnd ended = in_batch(bench, R"(wait_saved; note_strike
      srun --partition=urgent --nodes=2 --ntasks=8 sleep 1
      wait_job $job 'COMPLETED|FAILED' 120; job_is $job COMPLETED; job_field $job Restarts)",
                                    kLonger);
  require_well(ended);
  INFO(ended.out);
  CHECK_THAT(ended.out, ContainsSubstring("1\n"));
  check_comes(bench, kSlurm, "preempted for 1 s", noted_strike(bench), "resumed");
  CHECK(told(bench) == Words{"1 started", "1 preempted", "2 resumed", "2 restarted", "2 finished"});
  CHECK(weights(bench, "r") == undisturbed(bench, kLonger, "2"));
}

TEST_CASE("a batch job saves before its time is over, and when it is cancelled",
          "[join][engines][long]") {
  SKIP_WITHOUT_SLURM();
  const TrainBench bench;
  const ProcessEnd ended =
      in_batch(bench, R"(wait_saved
      wait_until 120 grep -q '"generation":2,"kind":"resumed"' $RUN/events.jsonl
      wait_until 20 grep -q 'resumes from step' out
      note_strike; scancel $job; wait_job $job CANCELLED 30; sleep 1; job_is $job CANCELLED)",
               {"--epochs", "100000", "--checkpoint-every", "400"}, "--time=1 --signal=TERM@50");
  require_well(ended);
  INFO(ended.out);
  CHECK(told(bench) ==
        Words{"1 started", "1 preempted", "2 resumed", "2 restarted", "2 preempted"});
  check_comes(bench, kSlurm, "cancelled", noted_strike(bench), "preempted");
}

TEST_CASE("a batch job outlives one of its nodes", "[join][engines][long]") {
  SKIP_WITHOUT_SLURM();
  const TrainBench bench;
  const ProcessEnd ended = in_batch(bench, R"(wait_saved
      note_strike
      slurmd=$(cat slurm/n1.pid) rank=$(rank_process 1 SLURM_PROCID)
      kill -9 $slurmd $(ps -o ppid= -p $rank) $rank
      wait_until 90 job_is $job 'PENDING|COMPLETING'
      $ENGINES/hosts.sh on n1 slurmd -N n1
      wait_job $job 'COMPLETED|FAILED' 120; job_is $job COMPLETED)",
                                    kLonger);
  require_well(ended);
  INFO(ended.out);
  check_comes(bench, kSlurm, "node lost, and back", noted_strike(bench), "resumed");
  const Words events = told(bench);
  REQUIRE(events.size() >= 4);
  CHECK(events[1] == "1 lost of 1");
  CHECK(events.back().ends_with(" finished"));
  CHECK(weights(bench, "r") == undisturbed(bench, kLonger, "2"));
}

TEST_CASE("torchrun starts ranks below srun", "[join][engines][peers][long]") {
  SKIP_WITHOUT_SLURM();
  SKIP_WITHOUT_TORCHRUN();
  const TrainBench bench;
  const Words flags = {"--epochs", "3"};
  const Words agent = torchrun({"--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d",
                                "--rdzv-id", "e", "--rdzv-endpoint", "n0:29512"});
  const ProcessEnd ended =
      in_slurm(bench, R"(srun --nodes=2 --ntasks=2 "$@")", agent + bench.command(flags));
  require_well(ended);
  CHECK_THAT(ended.out, ContainsSubstring("torchrun has started 2 ranks, 1 of them on this host"));
  CHECK(weights(bench, "r") == undisturbed(bench, flags, "2"));
}

TEST_CASE("mpirun starts ranks on one host and on two", "[join][engines]") {
  const std::string mpirun = GENERATE("mpirun.openmpi", "mpirun.mpich");
  SKIP_WITHOUT(mpirun);
  const TrainBench bench;
  const Words flags = {"--epochs", "3"};
  const bool is_open_mpi = mpirun == "mpirun.openmpi";
  const std::string one_host = mpirun + (is_open_mpi ? " --oversubscribe" : "");
  const std::string two_hosts =
      mpirun + (is_open_mpi ? " --mca plm_rsh_agent $ENGINES/ssh -H n0:1,n1:1"
                            : " -launcher ssh -launcher-exec $ENGINES/ssh -hosts n0,n1");
  const std::string expected = undisturbed(bench, flags, "2");
  const ProcessEnd one =
      on_mpi(bench, "note_strike; " + one_host + " -n 2 \"$@\"", bench.command(flags));
  require_well(one);
  check_comes(bench, name_of_mpi(mpirun), "start", noted_strike(bench), "started");
  CHECK_THAT(one.out, ContainsSubstring("mpirun has started 2 ranks, 2 of them on this host"));
  CHECK(weights(bench, "r") == expected);

  const Words two_flags = bench.command(flags + Words{"--name", "two"});
  const ProcessEnd lost = on_mpi(bench, two_hosts + " -n 2 \"$@\"", two_flags);
  CHECK(lost.exit_code != 0);
  CHECK_THAT(lost.out + lost.err, ContainsSubstring("MASTER_ADDR, the host of rank 0, is not set"));
  const std::string address = is_open_mpi ? " -x MASTER_ADDR=n0" : " -genv MASTER_ADDR n0";
  const ProcessEnd two = on_mpi(bench, two_hosts + address + " -n 2 \"$@\"", two_flags);
  require_well(two);
  CHECK_THAT(two.out, ContainsSubstring("mpirun has started 2 ranks, 1 of them on this host"));
  CHECK(weights(bench, "two") == expected);
}

TEST_CASE("ranks of mpirun record a killed rank, and save when mpirun is ended",
          "[join][engines][long]") {
  const std::string mpirun = GENERATE("mpirun.openmpi", "mpirun.mpich");
  SKIP_WITHOUT(mpirun);
  const TrainBench bench;
  const bool is_open_mpi = mpirun == "mpirun.openmpi";
  const std::string start = mpirun + (is_open_mpi ? " --oversubscribe" : "") + " -n 2 \"$@\"";
  const std::string rank = is_open_mpi ? "OMPI_COMM_WORLD_RANK" : "PMI_RANK";
  const ProcessEnd killed =
      on_mpi(bench, start + " & wait_saved; note_strike; kill_rank 1 " + rank + "; wait $!",
             bench.command(kLonger));
  CHECK(killed.exit_code != 0);
  const Strike strike = noted_strike(bench);
  const ProcessEnd ended = on_mpi(bench,
                                  start + R"( & wait_until 60 grep -q resumed $RUN/events.jsonl
      wait_until 60 has_rank 1 )" + rank +
                                      "; sleep 1; note_strike; kill -TERM $!; wait $!",
                                  bench.command(kLonger));
  INFO(ended.out << ended.err);
  CHECK(ended.exit_code != 0);
  CHECK(bench.result().at("status") == "preempted");
  check_comes(bench, name_of_mpi(mpirun), "rank 1 killed, started again by hand", strike,
              "resumed");
  check_comes(bench, name_of_mpi(mpirun), "cancelled", noted_strike(bench), "preempted");
  require_well(on_mpi(bench, start, bench.command(kLonger)));
  const Words events = told(bench);
  REQUIRE(events.size() == 6);
  CHECK(events[1].starts_with("1 lost"));
  CHECK(Words(events.begin() + 2, events.end()) ==
        Words{"2 resumed", "2 preempted", "3 resumed", "3 finished"});
  CHECK(weights(bench, "r") == undisturbed(bench, kLonger, "2"));
}
