#include "runtime/comm/membership.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <initializer_list>
#include <limits>
#include <optional>
#include <stdexcept>

namespace shardlens::runtime {

namespace {

constexpr int kTorchPort = 29500;  // the default of PyTorch's launchers

/// Reads the variables, with the launcher's name for errors.
class Variables {
 public:
  Variables(const Environment& environment, LauncherKind launcher)
      : environment_(environment), launcher_(launcher) {}

  /// Returns "" if the variable is not set.
  std::string text(const std::string& name) const {
    const auto found = environment_.find(name);
    return found == environment_.end() ? "" : found->second;
  }

  std::string needed_text(const std::string& name) const {
    if (text(name).empty()) refuse(fmt::format("{} is not set", name));
    return text(name);
  }

  std::optional<int> number(const std::string& name) const {
    const std::string value = text(name);
    if (value.empty()) return std::nullopt;
    int number = 0;
    const char* const end = value.data() + value.size();
    const auto [stop, error] = std::from_chars(value.data(), end, number);
    if (error != std::errc{} || stop != end || number < 0) {
      refuse(fmt::format("{}={} is not a count", name, value));
    }
    return number;
  }

  int needed_number(const std::string& name) const {
    needed_text(name);
    return *number(name);
  }

  /// Returns the number in the first variable that is set.
  std::optional<int> first_number(std::initializer_list<const char*> names) const {
    for (const char* name : names) {
      if (const auto value = number(name)) return value;
    }
    return std::nullopt;
  }

  [[noreturn]] void refuse(const std::string& why) const {
    throw std::invalid_argument(
        fmt::format("{} has started this program, but {}; start all ranks with {}, or one process "
                    "without its variables and with --workers",
                    to_string(launcher_), why, to_string(launcher_)));
  }

 private:
  const Environment& environment_;
  LauncherKind launcher_;
};

void check_places(const Membership& place, const Variables& variables) {
  const auto require_below = [&](int rank, int ranks, const char* what) {
    if (rank < ranks) return;
    variables.refuse(fmt::format("says that this is {} {} of {}", what, rank, ranks));
  };
  if (place.world_size < 1) variables.refuse("says that there are no ranks");
  require_below(place.rank, place.world_size, "rank");
  require_below(place.local_rank, place.local_world_size, "this host's rank");
  if (place.local_world_size > place.world_size) {
    variables.refuse(fmt::format("says that {} ranks of {} are on this host",
                                 place.local_world_size, place.world_size));
  }
}

uint16_t port_of(const Variables& variables, int otherwise) {
  const int port = variables.number("MASTER_PORT").value_or(otherwise);
  if (port == 0 || port > std::numeric_limits<uint16_t>::max()) {
    variables.refuse(fmt::format("MASTER_PORT={} is not a port", port));
  }
  return static_cast<uint16_t>(port);
}

/// Returns a port below those that systems assign by themselves, and a different one for each job
/// that shares the host.
int port_for(uint64_t job) { return 15000 + static_cast<int>(job % 15000); }

/// Computes FNV-1a.
uint64_t hash_of(const std::string& text) {
  uint64_t hash = 14695981039346656037U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash;
}

/// Returns who has set RANK. Every torchrun names its run.
LauncherKind launcher_with_rank(const Environment& environment) {
  const Variables variables(environment, LauncherKind::torchrun);
  if (variables.text("SHARDLENS_LAUNCHER") == "ray") return LauncherKind::ray;
  return variables.text("TORCHELASTIC_RUN_ID").empty() ? LauncherKind::unnamed
                                                       : LauncherKind::torchrun;
}

/// Reads the variables of torchrun, which others set, too.
Membership torchrun_membership(const Environment& environment) {
  const LauncherKind launcher = launcher_with_rank(environment);
  const Variables variables(environment, launcher);
  Membership place{.launcher = launcher,
                   .rank = variables.needed_number("RANK"),
                   .world_size = variables.needed_number("WORLD_SIZE"),
                   .local_rank = variables.needed_number("LOCAL_RANK"),
                   .local_world_size = variables.needed_number("LOCAL_WORLD_SIZE"),
                   .host = variables.needed_text("MASTER_ADDR")};
  variables.needed_text("MASTER_PORT");
  place.port = port_of(variables, 0);
  place.agent_serves = variables.text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  place.restarts = variables.number("TORCHELASTIC_RESTART_COUNT").value_or(0);
  // Each agent counts only the restarts that it has caused, so its count names no start.
  place.start_id = fmt::format("{}-{}", to_string(launcher), variables.text("TORCHELASTIC_RUN_ID"));
  place.may_restart = variables.number("TORCHELASTIC_MAX_RESTARTS").value_or(0) > 0;
  place.error_file = variables.text("TORCHELASTIC_ERROR_FILE");
  place.parent = variables.number("SHARDLENS_PARENT").value_or(0);
  check_places(place, variables);
  return place;
}

/// Chooses where the ranks meet, which mpirun does not say. On one host there is no choice to make.
void choose_store_of_mpi(Membership& place, const Variables& variables, const std::string& job) {
  place.host = variables.text("MASTER_ADDR");
  if (place.host.empty() && place.local_world_size < place.world_size) {
    variables.refuse(fmt::format(
        "{} of {} ranks are on this host and MASTER_ADDR, the host of rank 0, is not set",
        place.local_world_size, place.world_size));
  }
  if (place.host.empty()) place.host = "127.0.0.1";
  place.port = port_of(variables, job.empty() ? kTorchPort : port_for(hash_of(job)));
  place.start_id = "mpirun-" + job;
}

Membership open_mpi_membership(const Environment& environment) {
  const Variables variables(environment, LauncherKind::mpirun);
  Membership place{.launcher = LauncherKind::mpirun,
                   .rank = variables.needed_number("OMPI_COMM_WORLD_RANK"),
                   .world_size = variables.needed_number("OMPI_COMM_WORLD_SIZE"),
                   .local_rank = variables.needed_number("OMPI_COMM_WORLD_LOCAL_RANK"),
                   .local_world_size = variables.needed_number("OMPI_COMM_WORLD_LOCAL_SIZE")};
  const std::string job = variables.text("PMIX_NAMESPACE");
  choose_store_of_mpi(place, variables,
                      job.empty() ? variables.text("OMPI_MCA_ess_base_jobid") : job);
  check_places(place, variables);
  return place;
}

/// Reads the variables of MPICH's mpirun, and of MPIs that use the same process manager.
Membership pmi_membership(const Environment& environment) {
  const Variables variables(environment, LauncherKind::mpirun);
  Membership place{.launcher = LauncherKind::mpirun,
                   .rank = variables.needed_number("PMI_RANK"),
                   .world_size = variables.needed_number("PMI_SIZE")};
  place.local_rank =
      variables.first_number({"MPI_LOCALRANKID", "PMI_LOCAL_RANK"}).value_or(place.rank);
  place.local_world_size =
      variables.first_number({"MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}).value_or(place.world_size);
  choose_store_of_mpi(place, variables, "");
  check_places(place, variables);
  return place;
}

/// Returns the tasks on one host. The list "4(x2),3" says how many tasks each host has, in order.
int tasks_on_host(const Variables& variables, int host, int otherwise) {
  const std::string list = variables.text("SLURM_STEP_TASKS_PER_NODE");
  const char* next = list.data();
  const char* const end = next + list.size();
  while (next < end) {
    int tasks = 0, hosts = 1;
    const auto [after, error] = std::from_chars(next, end, tasks);
    if (error != std::errc{}) break;
    next = after;
    if (end - next > 2 && next[0] == '(' && next[1] == 'x') {
      next = std::from_chars(next + 2, end, hosts).ptr + 1;  // ")"
    }
    if (host < hosts) return tasks;
    host -= hosts;
    ++next;  // ","
  }
  return otherwise;
}

Membership slurm_membership(const Environment& environment) {
  const Variables variables(environment, LauncherKind::srun);
  const auto tasks = variables.first_number({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"});
  if (!tasks) variables.refuse("SLURM_NTASKS is not set");
  Membership place{.launcher = LauncherKind::srun,
                   .rank = variables.needed_number("SLURM_PROCID"),
                   .world_size = *tasks,
                   .local_rank = variables.needed_number("SLURM_LOCALID")};
  const int host = variables.number("SLURM_NODEID").value_or(0);
  const int at_least = place.local_rank + 1;
  place.local_world_size = tasks_on_host(variables, host, at_least);
  const int job = variables.number("SLURM_JOB_ID").value_or(0);
  const int step = variables.number("SLURM_STEP_ID").value_or(0);
  place.restarts = variables.number("SLURM_RESTART_COUNT").value_or(0);
  place.host = variables.text("MASTER_ADDR");
  if (place.host.empty()) {
    std::string hosts = variables.text("SLURM_STEP_NODELIST");
    if (hosts.empty()) hosts = variables.text("SLURM_JOB_NODELIST");
    if (hosts.empty()) hosts = variables.needed_text("SLURM_NODELIST");
    place.host = first_host(hosts);
  }
  constexpr uint64_t kStepsApart = 7;
  place.port = port_of(
      variables, port_for(static_cast<uint64_t>(job) * kStepsApart + static_cast<uint64_t>(step)));
  // A job that is requeued counts its steps from 0 again.
  place.job = step == 0 ? fmt::format("slurm-{}", job) : fmt::format("slurm-{}.{}", job, step);
  place.start_id = fmt::format("slurm-{}.{}/{}", job, step, place.restarts);
  check_places(place, variables);
  return place;
}

/// Throws if a launcher has set WORLD_SIZE above 1 and no RANK. Some systems export these variables
/// for every process, so a single process may continue as one.
void refuse_half_a_launcher(const Environment& environment) {
  const Variables variables(environment, LauncherKind::unnamed);
  if (variables.number("WORLD_SIZE").value_or(1) > 1) variables.needed_text("RANK");
}

}  // namespace

Environment this_environment() {
  Environment environment;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string line = *entry;
    const size_t equals = line.find('=');
    if (equals != std::string::npos) environment[line.substr(0, equals)] = line.substr(equals + 1);
  }
  return environment;
}

Membership membership_of(const Environment& environment) {
  if (environment.contains("RANK") && environment.contains("WORLD_SIZE")) {
    return torchrun_membership(environment);
  }
  if (environment.contains("OMPI_COMM_WORLD_SIZE")) return open_mpi_membership(environment);
  // A batch job's script has Slurm's variables too, but is not part of a step.
  const Variables slurm(environment, LauncherKind::srun);
  const auto tasks = slurm.first_number({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}).value_or(1);
  const bool is_step =
      environment.contains("SLURM_STEP_ID") || environment.contains("SLURM_STEP_NUM_TASKS");
  if (is_step && tasks > 1) return slurm_membership(environment);
  if (environment.contains("PMI_SIZE")) return pmi_membership(environment);
  refuse_half_a_launcher(environment);
  return {};
}

std::string first_host(const std::string& nodelist) {
  const auto refuse = [&] {
    throw std::invalid_argument(fmt::format(
        "SLURM_NODELIST={}: not a list of hosts; set MASTER_ADDR to the host of rank 0", nodelist));
  };
  std::string host;
  for (size_t at = 0; at < nodelist.size() && nodelist[at] != ',';) {
    if (nodelist[at] != '[') {
      host += nodelist[at++];
      continue;
    }
    const size_t close = nodelist.find(']', at);
    if (close == std::string::npos) refuse();
    const std::string inside = nodelist.substr(at + 1, close - at - 1);
    const std::string first = inside.substr(0, inside.find_first_of("-,"));
    if (first.empty()) refuse();
    host += first;
    at = close + 1;
  }
  if (host.empty() || host.find(']') != std::string::npos) refuse();
  return host;
}

}  // namespace shardlens::runtime
