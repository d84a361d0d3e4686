// Finds the file of the running program. It is a header alone, so the dispatcher, which links none
// of the modules, has it, too.
#pragma once

#include <filesystem>

namespace shardlens::input {

inline std::filesystem::path own_program() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

}  // namespace shardlens::input
