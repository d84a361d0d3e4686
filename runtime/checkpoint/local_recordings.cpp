#include "runtime/checkpoint/local_recordings.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/durable_files.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

std::string folder_of(int64_t generation) { return fmt::format("g{}", generation); }

/// Returns the N of "gN", or 0 for other names.
int64_t generation_of(const fs::path& folder) {
  const std::string name = folder.filename().string();
  int64_t generation = 0;
  if (!name.starts_with('g')) return 0;
  std::from_chars(name.data() + 1, name.data() + name.size(), generation);
  return name == folder_of(generation) ? generation : 0;
}

/// Returns the file that a killed rank has left beside its recording (profiler/file/writer.h).
fs::path open_part_of(const fs::path& recording) { return recording.string() + ".open"; }

/// Moves a file, first under a name with the attempt's number, so that two hosts can do it at once.
void move_file(const fs::path& from, const fs::path& to) {
  const fs::path temporary = to.string() + "." + from.parent_path().filename().string();
  copy_durably(from, temporary);
  rename_durably(temporary, to);
}

}  // namespace

LocalRecordings::LocalRecordings(const fs::path& folder, const RunDirectory& run, Fence fence)
    : profiles_(run.profile(0).parent_path()), fence_(std::move(fence)) {
  if (folder.empty()) return;
  own_ = folder / fmt::format("{}-{}", run.path().filename().string(), run.id());
}

void LocalRecordings::check(const fs::path& folder) {
  if (folder.empty()) return;
  const fs::path there = nearest_folder(folder);
  if (::access(there.c_str(), W_OK | X_OK) == 0 && fs::is_directory(there)) return;
  const int error = fs::is_directory(there) ? errno : ENOTDIR;
  throw std::invalid_argument(
      fmt::format("--profile-dir {}: cannot be written ({}); give a folder that you can write to, "
                  "on a disk of each host",
                  folder.string(), std::strerror(error)));
}

fs::path LocalRecordings::file(int rank) const {
  const fs::path folder = own_.empty() ? profiles_ : own_ / folder_of(fence_.generation());
  return folder / fmt::format("rank{}.slp", rank);
}

void LocalRecordings::collect(int rank) const {
  if (own_.empty() || !fs::exists(file(rank))) return;
  fence_.check();
  move(file(rank));
}

std::vector<std::string> LocalRecordings::collect_left() const {
  std::vector<std::string> lines;
  for (const fs::path& file : left_recordings()) {
    const fs::path kept = profiles_ / file.filename();
    try {
      if (fs::exists(kept) && fs::last_write_time(kept) > fs::last_write_time(file)) {
        drop(file);
        continue;
      }
      move(file);
      lines.push_back(fmt::format("collected an earlier attempt's recording: {}", kept.string()));
    } catch (const std::runtime_error& error) {
      lines.push_back(fmt::format("warning: {} was not moved: {}", file.string(), error.what()));
    }
  }
  return lines;
}

/// Returns the recordings that earlier attempts have left, the oldest attempt first.
std::vector<fs::path> LocalRecordings::left_recordings() const {
  std::error_code missing;
  std::vector<std::pair<int64_t, fs::path>> found;
  for (const auto& folder : fs::directory_iterator(own_, missing)) {
    const int64_t generation = generation_of(folder.path());
    if (generation == 0 || generation >= fence_.generation()) continue;
    for (const auto& entry : fs::directory_iterator(folder, missing)) {
      if (entry.path().extension() == ".slp") found.emplace_back(generation, entry.path());
    }
  }
  std::ranges::sort(found);
  std::vector<fs::path> files;
  for (auto& [generation, file] : found) files.push_back(std::move(file));
  return files;
}

void LocalRecordings::move(const fs::path& file) const {
  const fs::path to = profiles_ / file.filename();
  const bool was_killed = fs::exists(open_part_of(file));
  if (was_killed) move_file(open_part_of(file), open_part_of(to));
  move_file(file, to);
  if (!was_killed) fs::remove(open_part_of(to));  // it belongs to the replaced recording
  drop(file);
}

void LocalRecordings::drop(const fs::path& file) const {
  std::error_code ignored;
  for (const fs::path& path : {file, open_part_of(file), file.parent_path(), own_}) {
    fs::remove(path, ignored);  // removes a folder only if it is empty
  }
}

}  // namespace shardlens::runtime
