// A process that has imported what a program imports, and forks for each variant of the program
// (profiler/record/python/shardlens_record/warm.py).
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>

#include "base/process/line_socket.h"
#include "profiler/record/record_options.h"

namespace shardlens::profiler {

/// True for a variant whose levers act after the program's imports, and which is not to be alone.
bool can_be_forked(const RecordOptions& variant);

/// Holds the process for as long as it lives. The processes that it forks become children of this
/// one, which waits for them as for those that it has started itself.
class WarmPython {
 public:
  /// Starts a process that runs `become` with its end of a socket: it must execute the command of
  /// `options`. `imports` is what a variant has told of its imports. Waits until all are imported.
  WarmPython(const RecordOptions& options, const std::string& imports,
             const std::function<void(int socket)>& become);
  ~WarmPython();
  WarmPython(const WarmPython&) = delete;
  WarmPython& operator=(const WarmPython&) = delete;

  /// Returns why it cannot fork, or nothing.
  const std::optional<std::string>& why_not() const { return why_not_; }

  /// True if a variant differs only in what a child can change: its levers, the words that the
  /// program reads, and where its recording goes.
  bool suits(const RecordOptions& variant) const;

  /// Forks for a variant, which `request` describes in one line. Returns the child, or nothing: the
  /// variant needs a process of its own.
  std::optional<pid_t> fork_for(const std::string& request);

 private:
  std::optional<std::string> ask(const std::string& line);

  RecordOptions options_;
  pid_t process_ = -1;
  std::optional<LineSocket> socket_;
  std::optional<std::string> why_not_;
};

}  // namespace shardlens::profiler
