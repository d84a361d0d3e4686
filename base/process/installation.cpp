#include "base/process/installation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string_view>
#include <vector>

// Only programs that are built against an installation have this function (home.cpp).
extern "C" const char* shardlens_home() __attribute__((weak));

namespace shardlens {

namespace fs = std::filesystem;

namespace {

/// "2.15.0+cu132", from a line __version__ = '2.15.0+cu132'; empty: there is none.
std::string version_of(const fs::path& torch) {
  constexpr std::string_view kName = "__version__ = ";
  std::ifstream file(torch / "version.py");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(kName)) continue;
    const std::string value = line.substr(kName.size());
    return value.size() < 2 ? "" : value.substr(1, value.size() - 2);
  }
  return {};
}

bool is_version(const std::string& found, const std::string& wanted) {
  return found.substr(0, found.find('+')) == wanted;
}

fs::path cuda_runtime_of(const fs::path& torch) {
  return torch.parent_path() / "nvidia" / "cu" SHARDLENS_CUDA_MAJOR / "lib";
}

}  // namespace

void put_first(const char* variable, std::string paths) {
  const char* const before = std::getenv(variable);
  if (before != nullptr && *before != '\0') paths += fmt::format(":{}", before);
  ::setenv(variable, paths.c_str(), 1);
}

fs::path support_folder(const std::string& name) {
  const fs::path root = own_program().parent_path().parent_path();
  const fs::path installed = root / "lib/shardlens" / name;
  if (fs::exists(root / name)) return root / name;
  if (fs::exists(installed)) return installed;
  return shardlens_home == nullptr ? root / name : fs::path(shardlens_home()) / name;
}

std::string preload_of(const fs::path& stubs) {
  if (stubs.string().find_first_of(" :") != std::string::npos) {
    throw std::invalid_argument(fmt::format(
        "{}: the loader takes a space or a colon for the end of a name; install Shardlens in a "
        "folder without one",
        stubs.string()));
  }
  std::vector<std::string> libraries;
  std::error_code missing;
  for (const auto& entry : fs::directory_iterator(stubs, missing)) {
    // The soname: "libcuda.so.1". The link without a number serves the linker.
    if (entry.path().extension() != ".so") libraries.push_back(entry.path().string());
  }
  if (libraries.empty()) {
    throw std::runtime_error(
        fmt::format("the null device's libraries are not in {}; run make build", stubs.string()));
  }
  std::ranges::sort(libraries);
  return fmt::format("{}", fmt::join(libraries, ":"));
}

fs::path program_with_libtorch() {
  const fs::path self = own_program();
  return self.parent_path().parent_path() / "lib/shardlens/bin" / self.filename();
}

fs::path find_torch(const std::string& version) {
  const char* const named = std::getenv("SHARDLENS_TORCH");
  const bool is_named = named != nullptr && *named != '\0';
  const fs::path ours = own_program().parent_path().parent_path();
  const fs::path torch = is_named ? fs::path(named) : ours.parent_path() / "torch";
  const std::string found = version_of(torch);
  if (found.empty()) {
    throw std::invalid_argument(
        fmt::format("PyTorch {0} is needed, and there is no PyTorch in {1}; run pip install "
                    "torch=={0}, or name the folder of a torch package in SHARDLENS_TORCH",
                    version, torch.string()));
  }
  if (!is_version(found, version)) {
    throw std::invalid_argument(
        fmt::format("PyTorch {0} is needed, and {1} is {2}; run pip install torch=={0}", version,
                    torch.string(), found));
  }
  if (!fs::exists(torch / "lib/libc10_cuda.so") ||
      !fs::exists(cuda_runtime_of(torch) / "libcudart.so." SHARDLENS_CUDA_MAJOR)) {
    throw std::invalid_argument(fmt::format(
        "PyTorch {} of {} lacks CUDA {}; install the build that pip install torch=={} brings, with "
        "its dependencies (it also runs on the CPU)",
        found, torch.string(), SHARDLENS_CUDA_MAJOR, version));
  }
  return torch;
}

std::string libtorch_folders(const fs::path& torch) {
  return fmt::format("{}:{}", (torch / "lib").string(), cuda_runtime_of(torch).string());
}

}  // namespace shardlens
