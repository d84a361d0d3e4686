// Finds which ranks of a world have to be run so that every other rank is like one of them.
//
// How. A program that shards makes the same process groups on all ranks, so one rank's run tells
// them all. Groups of one size that cover the world are an axis: a pipeline's stages, the tensor
// ranks, the replicas. An axis that other axes form together, such as the world itself in most
// cases, is left out. Along each axis from rank 0 the first, the middle and the last rank are run,
// and then more between each two that take different memory. Ranks between two that take the same
// memory are assumed to be like these. A role is a set of ranks that are alike on every axis, and
// one rank of each role is run.
//
// Example. 4 pipeline stages of 2 replicas: groups {0, 2, 4, 6}, {1, 3, 5, 7} and {0, 1}, {2, 3},
// ... Ranks 0, 4, 6 and 2 differ, 0 and 1 do not: {0, 1}, {2, 3}, {4, 5} and {6, 7} are the roles.
//
// Limits. The assumption is not proven: a rank that differs although its neighbours on both sides
// are alike is missed. Groups that only some ranks know of are not seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace shardlens::profiler {

/// Holds the memory that a rank took. Ranks are alike if it is equal.
struct RankUsage {
  int64_t allocated_bytes = 0;  // at the peak
  int64_t reserved_bytes = 0;
  int64_t outside_bytes = 0;  // beside PyTorch

  int64_t device_bytes() const { return reserved_bytes + outside_bytes; }

  bool operator==(const RankUsage&) const = default;
};

/// A direction in which ranks may differ.
struct Axis {
  std::vector<int> place;  // of each rank
  std::vector<int> line;   // the ranks at each place, from rank 0 on

  bool operator==(const Axis&) const = default;
};

/// Returns the axes of a world; `groups` holds the ranks of each process group. A world without
/// groups is one axis.
std::vector<Axis> axes_of(int world_size, std::vector<std::vector<int>> groups);

struct Role {
  int rank = 0;            // the rank that was run; of several, the one that takes most memory
  std::vector<int> ranks;  // the ranks that it stands for, in order
};

/// At most this many ranks are run to find roles.
inline constexpr size_t kMostRoles = 64;

/// Chooses the ranks to run from what earlier ranks took.
class RoleSearch {
 public:
  RoleSearch(int world_size, std::vector<Axis> axes);

  void tell(int rank, const RankUsage& taken) { taken_[rank] = taken; }

  /// Returns the ranks to run next, which may run in parallel; empty: no more are needed.
  std::vector<int> next() const;

  /// False while ranks have to be run, even if kMostRoles does not allow more.
  bool is_complete() const { return wanted_ranks().empty(); }

  /// Returns the roles that are known so far, in the order of their first ranks. Roles that no rank
  /// was run for are left out.
  std::vector<Role> roles() const;

 private:
  std::vector<int> wanted_ranks() const;
  std::vector<int> missing_on(const std::vector<int>& line) const;
  std::map<std::vector<int>, std::vector<int>> alike() const;
  std::vector<int> classes_on(const std::vector<int>& line) const;

  int world_size_;
  std::vector<Axis> axes_;
  std::map<int, RankUsage> taken_;
};

/// Returns "0-2, 5" for 0, 1, 2, 5.
std::string ranges_text(const std::vector<int>& ranks);

}  // namespace shardlens::profiler
