// Runs a function in a child process, which may crash or hang, and returns what it wrote as text.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace shardlens::runtime {

struct ChildOutput {
  std::string text{};
  std::optional<int> exit_code;  // empty: killed, by a signal or at the deadline
  bool is_late = false;
};

/// Runs `body` in a child process, which is killed at the deadline. `body` writes to the descriptor
/// and returns the exit code. The calling process should have no other threads.
ChildOutput ask_child(std::chrono::milliseconds deadline, const std::function<int(int fd)>& body);

}  // namespace shardlens::runtime
