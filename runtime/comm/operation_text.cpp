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

std::string to_text(std::chrono::nanoseconds deadline) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g s", std::chrono::duration<double>(deadline).count());
  return text.data();
}

}  // namespace shardlens::runtime
