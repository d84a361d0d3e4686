// Writes scripts that let a shell complete the words of a `shardlens` command line.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace shardlens {

/// Returns the script that bash, zsh or fish reads when it starts; nothing for any other shell.
/// The script reads flags and their words from `shardlens COMMAND --help` on each completion, so
/// they match the installed programs. `commands` are separated by spaces.
std::optional<std::string> completion_script(std::string_view shell, std::string_view commands);

}  // namespace shardlens
