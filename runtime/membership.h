// Where this process stands: alone, as the user started it, or as one rank of several that another
// launcher has started: torchrun, mpirun or Slurm's srun. A pure function of the environment.
//
// Of several launchers the innermost counts: torchrun that srun has started, mpirun in a job of
// Slurm's.
#pragma once

#include <cstdint>
#include <map>
#include <string>

namespace shardlens::runtime {

using Environment = std::map<std::string, std::string, std::less<>>;

/// Of this process.
Environment this_environment();

enum class LauncherKind { none, torchrun, mpirun, srun };
std::string to_string(LauncherKind kind);

struct Membership {
  LauncherKind launcher = LauncherKind::none;
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // on this host
  int local_world_size = 1;

  // Where the ranks meet.
  std::string host{};
  uint16_t port = 0;
  bool agent_serves = false;  // torchrun's agent has the store open; else rank 0 opens it
  std::string meeting{};      // what sets this start apart from those before: "torchrun-run7/2"

  int restarts = 0;          // so often the launcher has started these ranks before
  bool may_restart = false;  // it starts them again where they fail
  std::string job{};         // its name for all these starts; empty: none that lasts
  std::string error_file{};  // where torchrun looks for the reason of a failure; empty: nowhere

  bool is_alone() const { return launcher == LauncherKind::none; }
};

/// Throws std::invalid_argument where variables are missing, are no numbers, or contradict each
/// other.
Membership membership_of(const Environment& environment);

/// The first of Slurm's list of hosts: "gpu-[003-005,9],cpu1" begins with "gpu-003". Throws
/// std::invalid_argument for what is no such list.
std::string first_host(const std::string& nodelist);

}  // namespace shardlens::runtime
