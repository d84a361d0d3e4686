// Reads the repository's own files, for which tidy_test.cpp has rules.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace shardlens::tests {

struct SourceFile {
  std::string path;  // from the root, with '/'
  std::string text;
};

inline SourceFile read_file(const std::filesystem::path& root, const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return {std::filesystem::relative(path, root).generic_string(), text.str()};
}

inline bool is_read(const std::filesystem::path& path) {
  static const std::set<std::string> extensions = {".cpp", ".h",    ".py", ".txt",
                                                   ".md",  ".json", ".sh", ""};
  return extensions.contains(path.extension().string()) && path.filename() != "LICENSE" &&
         path.filename() != ".git";  // a file in a worktree
}

inline std::vector<SourceFile> read_repository() {
  static const std::set<std::string> skipped = {"build", "dist",     ".deps",      "runs",
                                                ".git",  "fixtures", "__pycache__"};
  const std::filesystem::path root = SHARDLENS_SOURCE_DIR;
  std::vector<SourceFile> files;
  for (std::filesystem::recursive_directory_iterator it(root), end; it != end; ++it) {
    if (it->is_directory() && skipped.contains(it->path().filename().string())) {
      it.disable_recursion_pending();
    } else if (it->is_regular_file() && is_read(it->path())) {
      files.push_back(read_file(root, it->path()));
    }
  }
  std::ranges::sort(files, {}, &SourceFile::path);
  return files;
}

/// All files of the repository that people write, without built, fetched or recorded ones.
inline const std::vector<SourceFile>& repository() {
  static const std::vector<SourceFile> files = read_repository();
  return files;
}

inline std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

}  // namespace shardlens::tests
