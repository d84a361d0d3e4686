// Lists what can be opened, for the question that asks for a path.
#pragma once

#include <string>
#include <vector>

namespace shardlens::viewer {

struct BrowsedPath {
  std::string path;
  std::string name;         // as it is listed
  std::string what;         // "run of 2 ranks", "folder", "3 runs"; empty if it was opened before
  bool is_run = false;      // true for a run's folder
  bool is_entered = false;  // true for a folder that has something in it, but is no run
};

/// Returns what fits a path that is being typed: the content of its folder whose name has what
/// stands behind the last slash, in natural order, runs first. Where nothing is typed, what was
/// opened before comes first, then the content of the present folder. A folder that cannot be read
/// is empty.
std::vector<BrowsedPath> browse(const std::string& typed, const std::vector<std::string>& recent);

}  // namespace shardlens::viewer
