// Writes scripts with which a shell completes the words of a `shardlens` command line.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace shardlens {

/// Returns the script that bash, zsh or fish reads at its start; nothing for another shell's name.
/// The script reads flags and their words from `shardlens COMMAND --help` when they are asked for,
/// so that they are those of the installed programs. `commands` are separated by spaces.
std::optional<std::string> completion_script(std::string_view shell, std::string_view commands);

}  // namespace shardlens
