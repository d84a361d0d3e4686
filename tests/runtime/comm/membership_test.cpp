// Tests what is read from the environments of torchrun, srun and mpirun, and what is refused.
#include "runtime/comm/membership.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <stdexcept>
#include <string>

using namespace shardlens;
using namespace shardlens::runtime;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

Environment with_variables(Environment environment, const Environment& changes) {
  for (const auto& [name, value] : changes) environment[name] = value;
  return environment;
}

Environment without_variable(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

/// Printed by a process under `torchrun --nnodes 2 --nproc-per-node 4 --no-python`.
const Environment kTorchrun = {{"RANK", "5"},
                               {"WORLD_SIZE", "8"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "4"},
                               {"MASTER_ADDR", "node3"},
                               {"MASTER_PORT", "43211"},
                               {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                               {"TORCHELASTIC_RESTART_COUNT", "2"},
                               {"TORCHELASTIC_RUN_ID", "run7"},
                               {"TORCHELASTIC_ERROR_FILE", "/somewhere/error.json"}};

/// The environment of a step's task, by Slurm's documentation of srun.
const Environment kSlurm = {
    {"SLURM_PROCID", "5"},  {"SLURM_NTASKS", "7"},    {"SLURM_STEP_NUM_TASKS", "7"},
    {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "1"},    {"SLURM_STEP_TASKS_PER_NODE", "4,3"},
    {"SLURM_STEP_ID", "0"}, {"SLURM_JOB_ID", "4711"}, {"SLURM_JOB_NODELIST", "gpu-[003-004]"}};

const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                              {"OMPI_COMM_WORLD_SIZE", "2"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};

void check_refused(const Environment& environment, const std::string& why) {
  CHECK_THROWS_MATCHES(membership_of(environment), std::invalid_argument,
                       MessageMatches(ContainsSubstring(why)));
}

}  // namespace

TEST_CASE("a process without another launcher is alone") {
  CHECK(membership_of({}).is_alone());
  CHECK(membership_of({{"WORLD_SIZE", "1"}}).is_alone());
  CHECK(membership_of({{"MASTER_ADDR", "node3"}, {"MASTER_PORT", "1"}}).is_alone());
  // The script of a batch job, and what an interactive job starts without srun.
  CHECK(membership_of({{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "8"}, {"SLURM_PROCID", "0"}})
            .is_alone());
  // A shell that srun has started as a single task.
  CHECK(membership_of({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}).is_alone());
}

TEST_CASE("torchrun's ranks are known") {
  const Membership place = membership_of(kTorchrun);
  CHECK(place.launcher == LauncherKind::torchrun);
  CHECK(place.rank == 5);
  CHECK(place.world_size == 8);
  CHECK(place.local_rank == 1);
  CHECK(place.local_world_size == 4);
  CHECK(place.host == "node3");
  CHECK(place.port == 43211);
  CHECK(place.agent_serves);
  CHECK(place.restarts == 2);
  CHECK(place.error_file == "/somewhere/error.json");
  // Agents of one torchrun have different counts after one of them was replaced.
  CHECK(place.start_id ==
        membership_of(with_variables(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "3"}})).start_id);
  CHECK_FALSE(membership_of(with_variables(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}))
                  .agent_serves);
  // A single rank of torchrun is one of its ranks, too: it may be restarted.
  CHECK_FALSE(membership_of(with_variables(kTorchrun, {{"RANK", "0"},
                                                       {"WORLD_SIZE", "1"},
                                                       {"LOCAL_RANK", "0"},
                                                       {"LOCAL_WORLD_SIZE", "1"}}))
                  .is_alone());
}

TEST_CASE("a worker of Ray's names itself") {
  const Membership place = membership_of(
      with_variables(kTorchrun, {{"SHARDLENS_LAUNCHER", "ray"}, {"SHARDLENS_PARENT", "815"}}));
  CHECK(place.launcher == LauncherKind::ray);
  CHECK(place.rank == 5);
  CHECK(place.parent == 815);
  CHECK(membership_of(kTorchrun).parent == 0);
  check_refused({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"SHARDLENS_LAUNCHER", "ray"}},
                "ray has started this program, but LOCAL_RANK is not set");
}

TEST_CASE("a launcher that only sets RANK and WORLD_SIZE is not called torchrun") {
  const Environment job_set = without_variable(kTorchrun, "TORCHELASTIC_RUN_ID");
  CHECK(membership_of(job_set).launcher == LauncherKind::unnamed);
  CHECK(membership_of(job_set).rank == 5);
  check_refused(without_variable(job_set, "LOCAL_RANK"),
                "a launcher has started this program, but LOCAL_RANK is not set");
}

TEST_CASE("missing or impossible variables of torchrun are refused") {
  for (const char* name : {"LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
    check_refused(without_variable(kTorchrun, name), std::string(name) + " is not set");
  }
  check_refused(without_variable(kTorchrun, "RANK"), "RANK is not set");
  check_refused(with_variables(kTorchrun, {{"RANK", "8"}}), "this is rank 8 of 8");
  check_refused(with_variables(kTorchrun, {{"LOCAL_RANK", "4"}}), "this host's rank 4 of 4");
  check_refused(with_variables(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}),
                "9 ranks of 8 are on this host");
  check_refused(with_variables(kTorchrun, {{"RANK", "-1"}}), "RANK=-1 is not a count");
  check_refused(with_variables(kTorchrun, {{"WORLD_SIZE", "8x"}}), "WORLD_SIZE=8x is not a count");
  check_refused(with_variables(kTorchrun, {{"WORLD_SIZE", "0"}}), "there are no ranks");
  check_refused(with_variables(kTorchrun, {{"MASTER_PORT", "70000"}}), "70000 is not a port");
}

TEST_CASE("srun's ranks meet at the first host, at the job's port") {
  const Membership place = membership_of(kSlurm);
  CHECK(place.launcher == LauncherKind::srun);
  CHECK(place.rank == 5);
  CHECK(place.world_size == 7);
  CHECK(place.local_rank == 1);
  CHECK(place.local_world_size == 3);
  CHECK(place.host == "gpu-003");
  CHECK(place.restarts == 0);
  CHECK_FALSE(place.agent_serves);
  CHECK(place.port == membership_of(with_variables(kSlurm, {{"SLURM_PROCID", "0"}})).port);
  CHECK(place.port != membership_of(with_variables(kSlurm, {{"SLURM_JOB_ID", "4712"}})).port);
  CHECK(place.port != membership_of(with_variables(kSlurm, {{"SLURM_STEP_ID", "1"}})).port);
  const Membership again = membership_of(with_variables(kSlurm, {{"SLURM_RESTART_COUNT", "1"}}));
  CHECK(again.restarts == 1);
  CHECK(again.start_id != place.start_id);
  // A step that follows in the same allocation is another run; a requeued job is the same.
  CHECK(place.job == "slurm-4711");
  CHECK(again.job == place.job);
  CHECK(membership_of(with_variables(kSlurm, {{"SLURM_STEP_ID", "2"}})).job == "slurm-4711.2");
  const Membership told =
      membership_of(with_variables(kSlurm, {{"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "1234"}}));
  CHECK(told.host == "10.0.0.1");
  CHECK(told.port == 1234);
  check_refused(without_variable(kSlurm, "SLURM_PROCID"), "SLURM_PROCID is not set");
  check_refused(without_variable(kSlurm, "SLURM_JOB_NODELIST"), "SLURM_NODELIST is not set");
}

TEST_CASE("the tasks of a host are counted by Slurm's list") {
  const auto tasks = [](const std::string& list, const std::string& host) {
    return membership_of(with_variables(kSlurm, {{"SLURM_NTASKS", "16"},
                                                 {"SLURM_STEP_NUM_TASKS", "16"},
                                                 {"SLURM_STEP_TASKS_PER_NODE", list},
                                                 {"SLURM_NODEID", host}}))
        .local_world_size;
  };
  CHECK(tasks("4(x3),2", "0") == 4);
  CHECK(tasks("4(x3),2", "2") == 4);
  CHECK(tasks("4(x3),2", "3") == 2);
  CHECK(tasks("16", "0") == 16);
  CHECK(tasks("", "0") == 2);  // unknown: at least those below this one
}

TEST_CASE("the first host of Slurm's list is found") {
  CHECK(first_host("node1") == "node1");
  CHECK(first_host("node1,node2") == "node1");
  CHECK(first_host("gpu-[003-005,9],cpu1") == "gpu-003");
  CHECK(first_host("gpu[7]") == "gpu7");
  CHECK(first_host("r[1-2]n[04-08]") == "r1n04");
  CHECK(first_host("r[1-2].cluster") == "r1.cluster");
  for (const char* wrong : {"", ",", "node[", "node[]", "node]1"}) {
    CHECK_THROWS_AS(first_host(wrong), std::invalid_argument);
  }
}

TEST_CASE("mpirun's ranks meet on their host, or where the user says") {
  const Membership place = membership_of(kOpenMpi);
  CHECK(place.launcher == LauncherKind::mpirun);
  CHECK(place.rank == 1);
  CHECK(place.host == "127.0.0.1");
  CHECK(place.port > 0);
  CHECK(place.port !=
        membership_of(with_variables(kOpenMpi, {{"PMIX_NAMESPACE", "prterun-node-1@1"}})).port);
  const Environment two_hosts = with_variables(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "4"}});
  check_refused(two_hosts, "2 of 4 ranks are on this host and MASTER_ADDR");
  CHECK(membership_of(with_variables(two_hosts, {{"MASTER_ADDR", "node1"}})).host == "node1");
  const Membership mpich = membership_of({{"PMI_RANK", "3"},
                                          {"PMI_SIZE", "4"},
                                          {"MPI_LOCALRANKID", "1"},
                                          {"MPI_LOCALNRANKS", "2"},
                                          {"MASTER_ADDR", "node1"}});
  CHECK(mpich.rank == 3);
  CHECK(mpich.local_rank == 1);
  CHECK(mpich.local_world_size == 2);
}

TEST_CASE("of several launchers the innermost counts") {
  CHECK(membership_of(with_variables(kSlurm, kTorchrun)).launcher == LauncherKind::torchrun);
  CHECK(membership_of(with_variables(kSlurm, kOpenMpi)).launcher == LauncherKind::mpirun);
  CHECK(membership_of(with_variables(kSlurm, {{"PMI_RANK", "5"}, {"PMI_SIZE", "7"}})).launcher ==
        LauncherKind::srun);
}
