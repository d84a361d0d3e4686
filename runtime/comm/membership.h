// Finds out this process's place: alone, as the user started it, or one of several ranks that
// another launcher has started: torchrun, mpirun, Slurm's srun or a worker of Ray's. A pure
// function of the environment.
//
// Python's shardlens.ray sets the variables of torchrun, SHARDLENS_LAUNCHER=ray and
// SHARDLENS_PARENT, the worker's process.
//
// If there are several launchers, the innermost counts: torchrun that srun has started, or mpirun
// in a Slurm job.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/choice.h"

namespace shardlens::runtime {

using Environment = std::map<std::string, std::string, std::less<>>;

/// Returns the environment of this process.
Environment this_environment();

/// `unnamed` sets RANK and WORLD_SIZE as torchrun does, and is not torchrun: a JobSet, a script.
enum class LauncherKind { none, torchrun, unnamed, mpirun, srun, ray };
constexpr auto choice_words(LauncherKind) {
  return words("none", "torchrun", "a launcher", "mpirun", "srun", "ray");
}

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
  std::string start_id{};     // the same on all ranks of a start: "torchrun-run7"

  int restarts = 0;          // this rank's count; an agent of torchrun that replaces another has 0
  bool may_restart = false;  // the launcher restarts them if they fail
  std::string job{};         // its name over all starts; empty: it has no lasting name
  std::string error_file{};  // where torchrun looks for the reason of a failure; empty: nowhere
  int parent = 0;            // the process with which this one is to end; 0: none

  bool is_alone() const { return launcher == LauncherKind::none; }
};

/// Returns the place that the environment gives to this process. Throws std::invalid_argument if
/// variables are missing, are not numbers, or contradict each other.
Membership membership_of(const Environment& environment);

/// Returns the first host of Slurm's list: for "gpu-[003-005,9],cpu1" that is "gpu-003". Throws
/// std::invalid_argument for any other text.
std::string first_host(const std::string& nodelist);

}  // namespace shardlens::runtime
