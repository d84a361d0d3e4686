// A function in a child process, which may crash or hang: what it says comes back as text.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>

namespace shardlens::runtime {

struct ChildSaid {
  std::string text{};
  std::optional<int> exit_code;  // nothing: it was killed, by a signal or at the deadline
  bool is_late = false;
};

/// `body` writes to the descriptor and returns the exit code. The calling process should have no
/// other threads.
ChildSaid ask_child(std::chrono::milliseconds deadline, const std::function<int(int fd)>& body);

}  // namespace shardlens::runtime
