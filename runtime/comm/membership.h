// Finds out this process's place: alone, as the user started it, or one rank of several that
// another launcher has started: torchrun, mpirun or Slurm's srun. A pure function of the
// environment.
//
// The innermost launcher counts if there are several: torchrun that srun has started, mpirun in a
// job of Slurm's.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/choice.h"

namespace shardlens::runtime {

using Environment = std::map<std::string, std::string, std::less<>>;

/// Returns the environment of this process.
Environment this_environment();

enum class LauncherKind { none, torchrun, mpirun, srun };
constexpr auto choice_words(LauncherKind) { return words("none", "torchrun", "mpirun", "srun"); }

struct Membership {
  LauncherKind launcher = LauncherKind::none;
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // on this host
  int local_world_size = 1;

  // The place where the ranks meet.
  std::string host{};
  uint16_t port = 0;
  bool agent_serves = false;  // torchrun's agent has opened the store; else rank 0 does
  std::string start_id{};     // tells this start from those before: "torchrun-run7/2"

  int restarts = 0;          // how often the launcher has restarted these ranks
  bool may_restart = false;  // it starts them again if they fail
  std::string job{};         // its name for all these starts; empty: no lasting one
  std::string error_file{};  // where torchrun looks for the reason of a failure; empty: nowhere

  bool is_alone() const { return launcher == LauncherKind::none; }
};

/// Returns the place that the environment gives to this process. Throws std::invalid_argument if
/// variables are missing, are no numbers, or contradict each other.
Membership membership_of(const Environment& environment);

/// Returns the first of Slurm's list of hosts: for "gpu-[003-005,9],cpu1" that is "gpu-003". Throws
/// std::invalid_argument for what is no such list.
std::string first_host(const std::string& nodelist);

}  // namespace shardlens::runtime
