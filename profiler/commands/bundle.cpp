#include "profiler/commands/bundle.h"

#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/input_file.h"

namespace shardlens::profiler {

namespace fs = std::filesystem;

namespace {

constexpr std::array kFiles = {"config.json", "result.json", "metrics.jsonl", "events.jsonl"};
constexpr std::array kFolders = {"logs", "profiles"};

[[noreturn]] void fail(const fs::path& path, const std::string& why) {
  throw std::runtime_error(fmt::format("{}: {}", path.string(), why));
}

/// The files of a run that go into a bundle, as paths relative to the run, sorted by name within
/// each folder.
struct Contents {
  std::vector<fs::path> files;
  std::vector<fs::path> left_out;  // not files of the run, such as links that leave it
};

class Listing {
 public:
  explicit Listing(const fs::path& run) : run_(run), real_run_(fs::canonical(run)) {}

  Contents list() {
    for (const char* name : kFiles) take(name);
    for (const char* name : kFolders) take_folder(name);
    return std::move(found_);
  }

 private:
  /// True if the file is, or is behind, a link that leads out of the run or nowhere.
  bool is_outside(const fs::path& file) const {
    std::error_code broken;
    const fs::path real = fs::canonical(run_ / file, broken);
    const fs::path from_run = real.lexically_relative(real_run_);
    return broken || from_run.empty() || *from_run.begin() == "..";
  }

  void take(const fs::path& file) {
    std::error_code missing;
    const auto itself = fs::symlink_status(run_ / file, missing).type();
    if (itself == fs::file_type::not_found) return;
    if (is_outside(file)) return found_.left_out.push_back(file);
    if (fs::is_regular_file(run_ / file)) {
      found_.files.push_back(file);
    } else if (itself == fs::file_type::symlink || fs::is_other(run_ / file)) {
      found_.left_out.push_back(file);  // a link to a folder, or not a regular file
    }
  }

  void take_folder(const fs::path& folder) {
    std::error_code missing;
    if (!fs::is_directory(run_ / folder, missing) || is_outside(folder)) return take(folder);
    std::vector<fs::path> inside;
    for (const auto& entry : fs::recursive_directory_iterator(run_ / folder)) {
      inside.push_back(entry.path().lexically_relative(run_));
    }
    std::sort(inside.begin(), inside.end());
    for (const fs::path& file : inside) take(file);
  }

  fs::path run_;
  fs::path real_run_;
  Contents found_;
};

/// A file that is written under a temporary name, and gets its own name when it is whole.
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

  /// Adds a file to the archive and returns its length in bytes.
  int64_t add(const fs::path& file, const std::string& name) {
    const InputFile in(file);
    if (!in.is_open()) fail(file, *in.problem());
    const auto bytes = static_cast<int64_t>(in.bytes());
    add_header(name, bytes, fs::last_write_time(file));
    std::vector<std::byte> part(size_t{1} << 20);
    for (int64_t at = 0; at < bytes;) {
      const auto wanted =
          static_cast<size_t>(std::min<int64_t>(bytes - at, static_cast<int64_t>(part.size())));
      if (!in.read_at(at, std::span(part).first(wanted))) {
        fail(file, "shrank while it was read");
      }
      const auto written = ::archive_write_data(archive_.get(), part.data(), wanted);
      if (written != static_cast<la_ssize_t>(wanted)) {
        fail(path_, ::archive_error_string(archive_.get()));
      }
      at += static_cast<int64_t>(wanted);
    }
    return bytes;
  }

  /// Gives the archive its name and returns its size in bytes. Throws if a file of that name has
  /// appeared meanwhile, and leaves that file as it is.
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
  if (!fs::exists(folder / "config.json") && !fs::is_directory(folder / "profiles")) {
    throw std::invalid_argument(
        fmt::format("{}: not a run; give the folder that holds its config.json", run.string()));
  }
  Bundle bundle{.file = file.empty() ? fs::path(name + ".tar.zst") : file};
  if (fs::exists(fs::symlink_status(bundle.file))) {
    throw std::invalid_argument(fmt::format(
        "-o {}: the file already exists; give another name, or remove it", bundle.file.string()));
  }
  Contents contents = Listing(folder).list();
  Archive archive(bundle.file);
  for (const fs::path& each : contents.files) {
    // The resolved path is read, so that the run's own link cannot be turned elsewhere meanwhile.
    const fs::path real = fs::canonical(folder / each);
    bundle.input_bytes += archive.add(real, name + "/" + each.generic_string());
    ++bundle.files;
  }
  bundle.bytes = archive.publish();
  bundle.left_out = std::move(contents.left_out);
  return bundle;
}

}  // namespace shardlens::profiler
