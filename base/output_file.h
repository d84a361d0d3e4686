// Writes the files that a user names for a command's output. Such a file is whole or does not
// exist.
#pragma once

#include <functional>
#include <string>

namespace shardlens {

/// Throws std::invalid_argument if this process may not create or replace a file at `path`. A
/// command calls it first, so that it fails before it works. Nothing on disk changes.
void expect_writable(const std::string& path);

/// Calls `write` with the name of an unfinished file beside `path`. That file is renamed to `path`
/// when `write` returns and removed when it throws. Throws as expect_writable does, and
/// std::filesystem::filesystem_error (a std::runtime_error) if the file cannot be renamed.
void write_whole(const std::string& path, const std::function<void(const std::string&)>& write);

/// Writes `text` as write_whole does, but directly if `path` is a pipe or a terminal (/dev/stdout).
void write_text(const std::string& path, const std::string& text);

}  // namespace shardlens
