#include "runtime/installation.h"

// Only programs that are built against an installation have it (home.cpp).
extern "C" const char* shardlens_home() __attribute__((weak));

namespace shardlens::runtime {

namespace fs = std::filesystem;

fs::path support_folder(const std::string& name) {
  const fs::path root = fs::read_symlink("/proc/self/exe").parent_path().parent_path();
  const fs::path installed = root / "lib/shardlens" / name;
  if (fs::exists(root / name)) return root / name;
  if (fs::exists(installed)) return installed;
  return shardlens_home == nullptr ? root / name : fs::path(shardlens_home()) / name;
}

}  // namespace shardlens::runtime
