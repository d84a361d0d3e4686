// Names the lines of a recorded program, so that a comparison can tell whether a file has changed.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "profiler/recording/profile.h"

namespace shardlens::profiler {

struct ProgramLines {
  std::set<std::string> lines = {};  // "train.py:41 forward": all that a recording names
  /// The fingerprint of the files of a name, which `record` took; a snapshot has none.
  std::map<std::string, std::string> fingerprints = {};
};

/// Returns the lines on the stacks of a recording. Labels may be more: these are added as they are.
ProgramLines program_lines(const std::vector<std::string>& strings, const Stacks& stacks);

}  // namespace shardlens::profiler
