// Finds what our programs load rather than link: the null device's libraries, the library that is
// preloaded into a Python program, and, in a wheel, LibTorch.
//
// The tree of a wheel, and of `make tarball`, is an installation's without LibTorch, which it takes
// from where it is: bin/shardlens-train is a program that finds LibTorch and becomes the program of
// that name in lib/shardlens/bin. For that one, lib/shardlens is what the build folder is for the
// programs of a build.
#pragma once

#include <filesystem>
#include <string>

namespace shardlens {

/// Returns the file of the running program. It is inline, since the dispatcher links no room.
inline std::filesystem::path own_program() {
  return std::filesystem::read_symlink("/proc/self/exe");
}

/// Puts paths before those that an environment variable lists, with a colon between them.
void put_first(const char* variable, std::string paths);

/// Returns the folder of "null_device" or "record". In a build it is beside the program's folder;
/// in an installation it is below lib/shardlens, also for a program that was built against one. If
/// there is none, returns where the build would have put it.
std::filesystem::path support_folder(const std::string& name);

/// Returns the null device's libraries of a folder in the form that LD_PRELOAD wants. Throws
/// std::runtime_error if there are none, std::invalid_argument if the folder's name has a character
/// that the loader takes for a separator.
std::string preload_of(const std::filesystem::path& stubs);

/// Returns the path of the program that links LibTorch, for the wheel's program of that name, which
/// finds LibTorch first (main_with_libtorch.cpp).
std::filesystem::path program_with_libtorch();

/// Returns the folder of the torch package that this environment has: the one that SHARDLENS_TORCH
/// names, which a wheel's `shardlens` sets to that of its Python, else the package beside ours.
/// Throws std::invalid_argument if there is none, or none of this version that is built for CUDA.
std::filesystem::path find_torch(const std::string& version);

/// Returns the folders of a torch package's libraries in the form that LD_LIBRARY_PATH wants:
/// "torch/lib:nvidia/cu13/lib".
std::string libtorch_folders(const std::filesystem::path& torch);

}  // namespace shardlens
