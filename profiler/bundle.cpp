#include "profiler/bundle.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <vector>

namespace shardlens::profiler {

namespace fs = std::filesystem;

namespace {

constexpr std::array kFiles = {"config.json", "result.json", "metrics.jsonl", "events.jsonl"};
constexpr std::array kFolders = {"logs", "profiles"};

[[noreturn]] void fail(const fs::path& path, const std::string& why) {
  throw std::runtime_error(fmt::format("{}: {}", path.string(), why));
}

/// Regular files alone, in the order of their names, by their paths from the run.
std::vector<fs::path> files_of(const fs::path& run) {
  std::vector<fs::path> files;
  for (const char* name : kFiles) {
    if (fs::is_regular_file(run / name)) files.emplace_back(name);
  }
  for (const char* folder : kFolders) {
    if (!fs::is_directory(run / folder)) continue;
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(run / folder)) {
      if (entry.is_regular_file()) found.push_back(fs::relative(entry.path(), run));
    }
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  return files;
}

/// A file that is being written under another name, and is given its own when it is whole.
class Archive {
 public:
  explicit Archive(fs::path path)
      : path_(std::move(path)),
        unfinished_(path_.string() + fmt::format(".tmp-{}", ::getpid())),
        archive_(::archive_write_new(), ::archive_write_free) {
    check(::archive_write_set_format_pax_restricted(archive_.get()));
    check(::archive_write_add_filter_zstd(archive_.get()));
    check(::archive_write_open_filename(archive_.get(), unfinished_.c_str()));
  }
  ~Archive() {
    std::error_code ignored;
    archive_.reset();
    fs::remove(unfinished_, ignored);
  }
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;

  /// Returns how many bytes.
  int64_t add(const fs::path& file, const std::string& name) {
    std::ifstream in(file, std::ios::binary);
    if (!in) fail(file, std::strerror(errno));
    const auto bytes = static_cast<int64_t>(fs::file_size(file));
    add_header(name, bytes, fs::last_write_time(file));
    std::vector<char> part(size_t{1} << 20);
    for (int64_t left = bytes; left > 0;) {
      const auto wanted = std::min<int64_t>(left, static_cast<int64_t>(part.size()));
      if (!in.read(part.data(), wanted)) fail(file, "became shorter while it was read");
      const auto written =
          ::archive_write_data(archive_.get(), part.data(), static_cast<size_t>(wanted));
      if (written != wanted) fail(path_, ::archive_error_string(archive_.get()));
      left -= wanted;
    }
    return bytes;
  }

  /// Gives it its name. A file of that name that has come meanwhile stays.
  int64_t publish() {
    check(::archive_write_close(archive_.get()));
    const auto bytes = static_cast<int64_t>(fs::file_size(unfinished_));
    if (::link(unfinished_.c_str(), path_.c_str()) != 0) fail(path_, std::strerror(errno));
    return bytes;
  }

 private:
  void check(int result) {
    if (result != ARCHIVE_OK) fail(path_, ::archive_error_string(archive_.get()));
  }

  void add_header(const std::string& name, int64_t bytes, fs::file_time_type written) {
    const std::unique_ptr<archive_entry, decltype(&::archive_entry_free)> entry(
        ::archive_entry_new(), ::archive_entry_free);
    constexpr int kReadable = 0644;
    const auto since_epoch = std::chrono::file_clock::to_sys(written).time_since_epoch();
    ::archive_entry_set_pathname(entry.get(), name.c_str());
    ::archive_entry_set_size(entry.get(), bytes);
    ::archive_entry_set_filetype(entry.get(), AE_IFREG);
    ::archive_entry_set_perm(entry.get(), kReadable);
    ::archive_entry_set_mtime(
        entry.get(), std::chrono::duration_cast<std::chrono::seconds>(since_epoch).count(), 0);
    check(::archive_write_header(archive_.get(), entry.get()));
  }

  fs::path path_;
  fs::path unfinished_;
  std::unique_ptr<::archive, decltype(&::archive_write_free)> archive_;
};

}  // namespace

Bundle bundle_run(const fs::path& run, const fs::path& file) {
  const fs::path folder = fs::absolute(run).lexically_normal();
  const std::string name =
      (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  const std::vector<fs::path> files = files_of(folder);
  if (!fs::exists(folder / "config.json") && !fs::is_directory(folder / "profiles")) {
    throw std::invalid_argument(
        fmt::format("{}: not a run; give the folder that holds its config.json", run.string()));
  }
  Bundle bundle{.file = file.empty() ? fs::path(name + ".tar.zst") : file};
  if (fs::exists(fs::symlink_status(bundle.file))) {
    throw std::invalid_argument(fmt::format(
        "-o {}: the file is there already; give another name, or remove it", bundle.file.string()));
  }
  Archive archive(bundle.file);
  for (const fs::path& each : files) {
    bundle.input_bytes += archive.add(folder / each, name + "/" + each.generic_string());
    ++bundle.files;
  }
  bundle.bytes = archive.publish();
  return bundle;
}

}  // namespace shardlens::profiler
