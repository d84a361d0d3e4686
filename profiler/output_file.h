// Files that a user names for what a command says: there whole or not at all.
#pragma once

#include <functional>
#include <string>

namespace shardlens::profiler {

/// Throws std::invalid_argument where this process may not make or replace a file of that name, so
/// that a command can say so before it works. `path` alone changes nothing.
void expect_writable(const std::string& path);

/// `write` is given the name of a file beside `path`, which takes that name when `write` returns,
/// and is removed when it throws. Throws as expect_writable does, and std::runtime_error where the
/// name cannot be given.
void write_whole(const std::string& path, const std::function<void(const std::string&)>& write);

/// As write_whole, but into a pipe or a terminal (/dev/stdout) directly.
void write_text(const std::string& path, const std::string& text);

}  // namespace shardlens::profiler
