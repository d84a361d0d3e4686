#include "base/output_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <stdexcept>

namespace shardlens {

namespace fs = std::filesystem;

namespace {

/// True for a pipe or a terminal, such as /dev/stdout, where a text that is written cannot be
/// renamed later.
bool is_stream(const std::string& path) {
  std::error_code ignored;
  const fs::file_status file = fs::status(path, ignored);
  return fs::is_fifo(file) || fs::is_character_file(file);
}

bool write_now(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  return file.good();
}

}  // namespace

void expect_writable(const std::string& path) {
  const auto refuse = [&](const std::string& why, const char* instead) {
    throw std::invalid_argument(fmt::format("{}: {}; {}", path, why, instead));
  };
  std::error_code ignored;
  const fs::file_status file = fs::status(path, ignored);
  if (fs::is_directory(file)) refuse("is a folder", "give the name of a file");
  if (fs::exists(file) && !fs::is_regular_file(file)) {
    refuse("is not a regular file", "give another name");
  }
  fs::path folder = fs::path(path).parent_path();
  if (folder.empty()) folder = ".";
  if (!fs::is_directory(folder, ignored)) {
    refuse(fmt::format("there is no folder {}", folder.string()), "make it, or give another name");
  }
  const bool is_allowed = ::access(folder.c_str(), W_OK | X_OK) == 0 &&
                          (!fs::exists(file) || ::access(path.c_str(), W_OK) == 0);
  if (!is_allowed) refuse("is not writable", "give another place");
}

void write_whole(const std::string& path, const std::function<void(const std::string&)>& write) {
  expect_writable(path);
  const std::string unfinished = fmt::format("{}.{}.unfinished", path, ::getpid());
  try {
    write(unfinished);
    fs::rename(unfinished, path);
  } catch (...) {
    std::error_code ignored;
    fs::remove(unfinished, ignored);
    throw;
  }
}

void write_text(const std::string& path, const std::string& text) {
  const auto write = [&](const std::string& name) {
    if (write_now(name, text)) return;
    throw std::runtime_error(fmt::format("{}: cannot be written; is there room?", path));
  };
  if (is_stream(path)) return write(path);
  write_whole(path, write);
}

}  // namespace shardlens
