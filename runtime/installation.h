// Where a program of ours finds what it loads and does not link: the null device's libraries and
// what is preloaded into a Python program.
#pragma once

#include <filesystem>
#include <string>

namespace shardlens::runtime {

/// "null_device" or "record": beside the folder of the program in a build, below lib/shardlens of
/// an installation, also for a program that was built against one. Where it is nowhere, where the
/// build would have put it.
std::filesystem::path support_folder(const std::string& name);

}  // namespace shardlens::runtime
