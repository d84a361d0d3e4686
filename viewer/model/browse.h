// Lists what can be opened, for the prompt that asks for a path.
#pragma once

#include <string>
#include <vector>

namespace shardlens::viewer {

struct BrowsedPath {
  std::string path;
  std::string name;         // as it is listed
  std::string what;         // "run of 2 ranks", "folder", "3 runs"; empty if it was opened before
  bool is_run = false;      // true for a run's folder
  bool is_entered = false;  // true for a folder that is not empty and not a run
};

/// Returns what matches a path that is being typed: the entries of its folder whose name contains
/// the text after the last slash, in natural order, runs first. If nothing is typed, what was
/// opened before comes first, then the current folder. A folder that cannot be read counts as
/// empty.
std::vector<BrowsedPath> browse(const std::string& typed, const std::vector<std::string>& recent);

}  // namespace shardlens::viewer
