#include "viewer/app/recent.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <fstream>

#include "base/output_file.h"

namespace shardlens::viewer {

namespace {

namespace fs = std::filesystem;

constexpr size_t kMostRecent = 12;

}  // namespace

std::vector<std::string> recent_paths(const std::string& file) {
  std::vector<std::string> paths;
  std::ifstream lines(file);
  for (std::string line; paths.size() < kMostRecent && std::getline(lines, line);) {
    if (!line.empty()) paths.push_back(line);
  }
  return paths;
}

void remember_paths(const std::vector<std::string>& paths, const std::string& file) {
  if (file.empty()) return;
  std::vector<std::string> all;
  const auto add = [&](const std::string& path) {
    const bool has_line = path.find('\n') != std::string::npos;
    if (!has_line && std::ranges::find(all, path) == all.end()) all.push_back(path);
  };
  std::error_code failed;
  for (const std::string& path : paths) {
    const fs::path whole = fs::absolute(path, failed).lexically_normal();
    if (fs::exists(whole, failed)) add(whole.string());
  }
  for (const std::string& path : recent_paths(file)) add(path);
  all.resize(std::min(all.size(), kMostRecent));
  fs::create_directories(fs::path(file).parent_path(), failed);
  try {
    write_text(file, fmt::format("{}\n", fmt::join(all, "\n")));
  } catch (const std::exception&) {  // a user who only looks needs no list
  }
}

}  // namespace shardlens::viewer
