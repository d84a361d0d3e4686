// Finds what a program of ours loads and does not link: the null device's libraries, what is
// preloaded into a Python program, and, in a wheel, LibTorch.
//
// The tree of a wheel, and of `make tarball`, is an installation's without LibTorch, which it takes
// from where it is: bin/shardlens-train is a program that finds LibTorch and becomes the program of
// that name in lib/shardlens/bin. For that one, lib/shardlens is what the build folder is for the
// programs of a build.
#pragma once

#include <filesystem>
#include <string>

namespace shardlens::runtime {

/// Returns the folder of "null_device" or "record". In a build it is beside the program's folder;
/// in an installation it is below lib/shardlens, also for a program that was built against one. If
/// it is nowhere, returns where the build would have put it.
std::filesystem::path support_folder(const std::string& name);

/// The null device's libraries in a folder, as LD_PRELOAD wants them. Throws std::runtime_error
/// where there are none, std::invalid_argument where the loader cannot be told the folder's name.
std::string preload_of(const std::filesystem::path& stubs);

/// Of a wheel's program that links LibTorch, for the one that finds it (main_with_libtorch.cpp).
std::filesystem::path program_with_libtorch();

/// The folder of the torch package that this environment has: what SHARDLENS_TORCH names, which
/// `shardlens` of a wheel sets to that of its Python, else the package beside ours. Throws
/// std::invalid_argument where there is none, or none of this version that is built for CUDA.
std::filesystem::path find_torch(const std::string& version);

/// Of such a package, as the loader wants them: "torch/lib:nvidia/cu13/lib".
std::string libtorch_folders(const std::filesystem::path& torch);

}  // namespace shardlens::runtime
