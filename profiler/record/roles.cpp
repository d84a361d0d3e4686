#include "profiler/record/roles.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace shardlens::profiler {

namespace {

using Ranks = std::vector<int>;

/// Blocks of ranks that do not overlap and together hold every rank.
struct Partition {
  std::vector<int> block_of;  // by rank
  std::vector<Ranks> blocks;  // each is sorted; ordered by their first ranks
};

Partition partition_of(int world_size, std::vector<Ranks> blocks) {
  std::ranges::sort(blocks);
  Partition partition{.block_of = std::vector<int>(static_cast<size_t>(world_size), -1),
                      .blocks = std::move(blocks)};
  for (size_t i = 0; i < partition.blocks.size(); ++i) {
    for (const int rank : partition.blocks[i]) {
      partition.block_of[static_cast<size_t>(rank)] = static_cast<int>(i);
    }
  }
  return partition;
}

bool is_among_ranks(const Ranks& group, int world_size) {
  return group.size() > 1 && group.front() >= 0 && group.back() < world_size &&
         std::ranges::adjacent_find(group) == group.end();
}

/// Returns groups of one size that share no rank, in their order, starting from the first group
/// that is not used.
std::vector<Ranks> disjoint_from_first(const std::vector<Ranks>& groups,
                                       const std::set<Ranks>& used) {
  std::vector<Ranks> blocks;
  std::set<int> covered;
  for (const Ranks& group : groups) {
    const bool has_size = blocks.empty() || blocks.front().size() == group.size();
    const auto is_covered = [&](int rank) { return covered.contains(rank); };
    if (!has_size || used.contains(group) || std::ranges::any_of(group, is_covered)) continue;
    covered.insert(group.begin(), group.end());
    blocks.push_back(group);
  }
  return blocks;
}

/// Returns the partitions that groups of one size form, the finest first. A program makes the
/// groups of a partition one after the other, perhaps with other groups in between.
std::vector<Partition> partitions_of(int world_size, std::vector<Ranks> groups) {
  for (Ranks& group : groups) std::ranges::sort(group);
  std::erase_if(groups, [&](const Ranks& group) { return !is_among_ranks(group, world_size); });
  std::ranges::stable_sort(groups, {}, &Ranks::size);
  std::vector<Partition> partitions;
  std::set<Ranks> used;
  for (;;) {
    std::vector<Ranks> blocks = disjoint_from_first(groups, used);
    if (blocks.empty()) return partitions;
    if (blocks.size() * blocks.front().size() < static_cast<size_t>(world_size)) {
      used.insert(blocks.front());  // is part of no partition
      continue;
    }
    used.insert(blocks.begin(), blocks.end());
    partitions.push_back(partition_of(world_size, std::move(blocks)));
  }
}

bool refines(const Partition& fine, const Partition& coarse) {
  return std::ranges::all_of(fine.blocks, [&](const Ranks& block) {
    const int whole = coarse.block_of[static_cast<size_t>(block.front())];
    return std::ranges::all_of(
        block, [&](int rank) { return coarse.block_of[static_cast<size_t>(rank)] == whole; });
  });
}

/// Returns the finest partition in which ranks that share a block of any of these share a block.
Partition joined(int world_size, const std::vector<const Partition*>& partitions) {
  Ranks leader(static_cast<size_t>(world_size));
  std::iota(leader.begin(), leader.end(), 0);
  const auto find = [&](int rank) {
    while (leader[static_cast<size_t>(rank)] != rank) rank = leader[static_cast<size_t>(rank)];
    return rank;
  };
  for (const Partition* partition : partitions) {
    for (const Ranks& block : partition->blocks) {
      for (const int rank : block) {
        const int one = find(block.front()), other = find(rank);
        leader[static_cast<size_t>(std::max(one, other))] = std::min(one, other);
      }
    }
  }
  std::map<int, Ranks> blocks;
  for (int rank = 0; rank < world_size; ++rank) blocks[find(rank)].push_back(rank);
  std::vector<Ranks> all;
  for (auto& [_, block] : blocks) all.push_back(std::move(block));
  return partition_of(world_size, std::move(all));
}

Axis axis_of(int world_size, const Partition& partition) {
  Axis axis{.place = Ranks(static_cast<size_t>(world_size)),
            .line = partition.blocks[static_cast<size_t>(partition.block_of.front())]};
  for (const Ranks& block : partition.blocks) {
    for (size_t i = 0; i < block.size(); ++i) {
      axis.place[static_cast<size_t>(block[i])] = static_cast<int>(i);
    }
  }
  return axis;
}

Axis axis_of_blocks(const Partition& partition) {
  Axis axis{.place = partition.block_of, .line = {}};
  for (const Ranks& block : partition.blocks) axis.line.push_back(block.front());
  return axis;
}

}  // namespace

std::vector<Axis> axes_of(int world_size, std::vector<std::vector<int>> groups) {
  std::vector<Axis> axes;
  const std::vector<Partition> all = partitions_of(world_size, std::move(groups));
  std::vector<const Partition*> kept;
  for (const Partition& partition : all) {
    std::vector<const Partition*> finer;
    for (const Partition* one : kept) {
      if (refines(*one, partition)) finer.push_back(one);
    }
    if (joined(world_size, finer).blocks == partition.blocks) continue;
    kept.push_back(&partition);
    axes.push_back(axis_of(world_size, partition));
  }
  const Partition whole = joined(world_size, kept);
  if (whole.blocks.size() > 1) axes.push_back(axis_of_blocks(whole));
  return axes;
}

RoleSearch::RoleSearch(int world_size, std::vector<Axis> axes)
    : world_size_(world_size), axes_(std::move(axes)) {}

std::vector<int> RoleSearch::missing_on(const std::vector<int>& line) const {
  std::set<int> missing;
  const auto is_known = [&](size_t place) { return taken_.contains(line[place]); };
  const auto want = [&](size_t place) {
    if (!is_known(place)) missing.insert(line[place]);
  };
  want(0);
  want(line.size() / 2);
  want(line.size() - 1);
  size_t before = 0;
  for (size_t place = 1; place < line.size(); ++place) {
    if (!is_known(place)) continue;
    const bool differs = is_known(before) && taken_.at(line[before]) != taken_.at(line[place]);
    if (differs && place - before > 1) want((before + place) / 2);
    before = place;
  }
  return {missing.begin(), missing.end()};
}

/// Returns, for each place, the first place that is like it.
std::vector<int> RoleSearch::classes_on(const std::vector<int>& line) const {
  std::vector<int> classes(line.size());
  int current = 0;
  for (size_t place = 1; place < line.size(); ++place) {
    const auto own = taken_.find(line[place]);
    const auto before = taken_.find(line[static_cast<size_t>(current)]);
    const bool differs =
        own != taken_.end() && before != taken_.end() && own->second != before->second;
    if (differs) current = static_cast<int>(place);
    classes[place] = current;
  }
  return classes;
}

/// Returns the ranks of each role, by their classes on each axis.
std::map<std::vector<int>, std::vector<int>> RoleSearch::alike() const {
  std::vector<std::vector<int>> classes;
  for (const Axis& axis : axes_) classes.push_back(classes_on(axis.line));
  std::map<std::vector<int>, std::vector<int>> ranks;
  for (int rank = 0; rank < world_size_; ++rank) {
    std::vector<int> key;
    for (size_t i = 0; i < axes_.size(); ++i) {
      const int place = axes_[i].place[static_cast<size_t>(rank)];
      key.push_back(classes[i][static_cast<size_t>(place)]);
    }
    ranks[key].push_back(rank);
  }
  return ranks;
}

std::vector<int> RoleSearch::wanted_ranks() const {
  std::set<int> wanted;
  for (const Axis& axis : axes_) {
    const std::vector<int> missing = missing_on(axis.line);
    wanted.insert(missing.begin(), missing.end());
  }
  if (axes_.empty() && !taken_.contains(0)) wanted.insert(0);
  if (wanted.empty()) {
    for (const auto& [_, ranks] : alike()) {
      const auto was_run = [&](int rank) { return taken_.contains(rank); };
      if (std::ranges::none_of(ranks, was_run)) wanted.insert(ranks.front());
    }
  }
  return {wanted.begin(), wanted.end()};
}

std::vector<int> RoleSearch::next() const {
  std::vector<int> ranks = wanted_ranks();
  const size_t left = kMostRoles - std::min(kMostRoles, taken_.size());
  if (ranks.size() > left) ranks.resize(left);
  return ranks;
}

std::vector<Role> RoleSearch::roles() const {
  std::vector<Role> roles;
  for (auto [_, ranks] : alike()) {
    std::optional<int> fullest;
    for (const int rank : ranks) {
      if (!taken_.contains(rank)) continue;
      if (!fullest || taken_.at(rank).device_bytes() > taken_.at(*fullest).device_bytes()) {
        fullest = rank;
      }
    }
    if (fullest) roles.push_back({.rank = *fullest, .ranks = std::move(ranks)});
  }
  std::ranges::sort(roles, {}, [](const Role& role) { return role.ranks.front(); });
  return roles;
}

std::string ranges_text(const std::vector<int>& ranks) {
  std::string text;
  for (size_t first = 0, last = 0; first < ranks.size(); first = last + 1) {
    last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", ranks[first]);
    if (last > first) text += fmt::format("-{}", ranks[last]);
  }
  return text;
}

}  // namespace shardlens::profiler
