// Says whether the peaks of two runs can be compared as numbers, and names everything that differs
// or that a recording lacks. `diff` shows these obstacles; `gate` refuses to compare unless --allow
// names each by its word.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/compare/diff.h"

namespace shardlens::profiler {

enum class Obstacle : uint8_t {
  damaged,
  growing,
  killed,
  newer,
  lost,
  out_of_memory,
  ranks,
  world,
  device,
  steps,
};
constexpr int kObstacles = 10;

struct ObstacleInfo {
  std::string_view word;  // for --allow
  std::string_view why;   // why the numbers cannot be compared
};
const ObstacleInfo& info_of(Obstacle obstacle);

struct FoundObstacle {
  Obstacle obstacle{};
  std::string text;  // "B, rank 3: still being written: the peak so far"
};

/// Returns the obstacles in the order of the ranks; empty if everything can be compared.
std::vector<FoundObstacle> obstacles_between(const RunDiff& diff);

/// Parses the words of --allow, "steps,device" or one at a time. Throws std::invalid_argument for
/// an unknown word, and lists the known ones.
std::vector<Obstacle> parse_allowed(const std::vector<std::string>& words);

std::vector<FoundObstacle> remove_allowed(std::vector<FoundObstacle> findings,
                                          std::span<const Obstacle> allowed);

/// Returns one line: why the two are not compared, and what --allow would have to name. Call it
/// with at least one finding.
std::string refusal(std::span<const FoundObstacle> findings);

}  // namespace shardlens::profiler
