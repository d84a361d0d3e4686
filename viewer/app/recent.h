// Remembers what was opened, for the next time.
#pragma once

#include <string>
#include <vector>

namespace shardlens::viewer {

/// Returns the paths of a file, the latest first; none if there is no such file.
std::vector<std::string> recent_paths(const std::string& file);

/// Puts paths before those that the file has, as absolute ones, and keeps the latest twelve. A file
/// that cannot be written stays as it is: it must not disturb a user who only looks.
void remember_paths(const std::vector<std::string>& paths, const std::string& file);

}  // namespace shardlens::viewer
