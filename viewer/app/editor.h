// Opens a line of a file in the user's editor, with a command that the user gave.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "profiler/report/alive_tree.h"

namespace shardlens::viewer {

/// A command such as "code -g {file}:{line}". It is split into words at blanks outside quotes, and
/// run without a shell: a name in a recording is never more than a part of one word.
class Editor {
 public:
  /// Takes the command; an empty one opens nothing. Throws std::invalid_argument if it lacks
  /// {file}, or if a quote is not closed.
  explicit Editor(const std::string& command);

  /// Starts the editor, and returns a message for the user. A file that does not exist on this
  /// machine is not opened.
  std::string open(const profiler::TreePlace& call);

  /// Returns the words of the command for a file and a line.
  std::vector<std::string> words_for(const std::string& file, uint32_t line) const;

 private:
  void forget_ended();

  std::vector<std::string> words_;
  std::vector<pid_t> started_;
};

}  // namespace shardlens::viewer
