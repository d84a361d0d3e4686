#include "runtime/comm/operation_text.h"

#include <array>
#include <cstdio>

namespace shardlens::runtime {

std::string to_text(int rank, const Operation& operation) {
  std::string text = "rank " + std::to_string(rank) + ", step " + std::to_string(operation.step) +
                     ", " + std::string(operation.kind);
  if (!operation.group.empty()) text += " of " + std::string(operation.group);
  if (operation.bucket >= 0) text += " bucket " + std::to_string(operation.bucket);
  return text;
}

std::string to_text(const planner::RankSet& ranks, int rank) {
  const std::string first = std::to_string(ranks.first_of(rank));
  if (ranks.size == 1) return "rank " + first;
  std::string text = "ranks " + first + " to " + std::to_string(ranks.member(rank, ranks.size - 1));
  if (ranks.stride > 1) text += " in steps of " + std::to_string(ranks.stride);
  return text;
}

std::string to_text(std::chrono::nanoseconds deadline) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g s", std::chrono::duration<double>(deadline).count());
  return text.data();
}

}  // namespace shardlens::runtime
