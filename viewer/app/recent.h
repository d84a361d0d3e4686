// Remembers what was opened, for the next time.
#pragma once

#include <string>
#include <vector>

namespace shardlens::viewer {

/// Returns the paths in a file, the latest first; none if the file does not exist.
std::vector<std::string> recent_paths(const std::string& file);

/// Puts paths before those in the file, made absolute, and keeps the latest twelve. A file that
/// cannot be written stays as it is: that must not disturb a user who only looks.
void remember_paths(const std::vector<std::string>& paths, const std::string& file);

}  // namespace shardlens::viewer
