#include "base/durable_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/input_file.h"
#include "base/limits.h"

namespace shardlens {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void fail(const fs::path& path, int error) {
  const bool is_full = error == ENOSPC || error == EDQUOT;
  const char* const fix = error == EFBIG ? "; raise the limit on file sizes (ulimit -f)" : "";
  throw Failure(
      is_full ? Fault::disk_full : Fault::disk_failed,
      fmt::format("{}: cannot be written ({}){}", path.string(), std::strerror(error), fix));
}

[[noreturn]] void fail(const fs::path& path) { fail(path, errno); }

/// Opens a file as open() does, again if a signal interrupts it.
int open_file(const fs::path& path, int flags) {
  int file = -1;
  do {
    file = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  } while (file < 0 && errno == EINTR);
  return file;
}

/// Removes a folder and its files, but for those that another process creates or, on NFS, holds
/// open meanwhile.
void remove_unless_held(const fs::path& folder) {
  std::error_code error;
  fs::remove_all(folder, error);
  if (error && error != std::errc::directory_not_empty) fail(folder, error.value());
}

void write_temporary(const fs::path& path, const std::string& text) {
  const SharedFile file(path, SharedFile::Content::drop);
  file.write_at(0, std::as_bytes(std::span(text)));
  file.sync();
}

}  // namespace

SharedFile::SharedFile(fs::path path, Content content)
    : path_(std::move(path)),
      file_(open_file(path_, O_CREAT | O_WRONLY | (content == Content::drop ? O_TRUNC : 0))) {
  if (file_ < 0) fail(path_);
}

SharedFile::SharedFile(SharedFile&& other) noexcept
    : path_(std::move(other.path_)), file_(std::exchange(other.file_, -1)) {}

SharedFile::~SharedFile() {
  if (file_ >= 0) ::close(file_);
}

void SharedFile::write_at(int64_t offset_bytes, std::span<const std::byte> data) const {
  while (!data.empty()) {
    const ssize_t written = ::pwrite(file_, data.data(), data.size(), offset_bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail(path_);
    if (written == 0) fail(path_, ENOSPC);
    offset_bytes += written;
    data = data.subspan(static_cast<size_t>(written));
  }
}

void SharedFile::sync() const {
  if (::fsync(file_) != 0) fail(path_);
}

void sync_folder(const fs::path& folder) {
  const int file = open_file(folder, O_RDONLY | O_DIRECTORY);
  if (file < 0) fail(folder);
  const bool synced = ::fsync(file) == 0;
  const int problem = errno;
  ::close(file);
  if (!synced) fail(folder, problem);
}

void make_folders(const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) fail(folder, error.value());
}

void rename_durably(const fs::path& from, const fs::path& to) {
  if (::rename(from.c_str(), to.c_str()) != 0) fail(to);
  sync_folder(to.parent_path());
  if (from.parent_path() != to.parent_path()) sync_folder(from.parent_path());
}

void remove_aside(const fs::path& folder, const fs::path& aside) {
  remove_unless_held(aside);
  if (::rename(folder.c_str(), aside.c_str()) != 0) {
    if (errno == ENOENT) return;
    fail(folder);
  }
  sync_folder(aside.parent_path());
  remove_unless_held(aside);
}

void write_file(const fs::path& path, const std::string& text) {
  const fs::path temporary = path.string() + ".tmp";
  try {
    write_temporary(temporary, text);
    rename_durably(temporary, path);
  } catch (const std::runtime_error&) {
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw;
  }
}

void copy_durably(const fs::path& from, const fs::path& to) {
  std::error_code ignored;
  try {
    fs::copy_file(from, to, fs::copy_options::overwrite_existing);
    SharedFile(to).sync();
    fs::last_write_time(to, fs::last_write_time(from));
  } catch (const fs::filesystem_error& error) {
    fs::remove(to, ignored);
    fail(to, error.code().value());
  } catch (const Failure&) {
    fs::remove(to, ignored);
    throw;
  }
}

fs::path nearest_folder(const fs::path& path) {
  std::error_code error;
  fs::path folder = fs::absolute(path);
  while (!fs::exists(folder, error) && folder != folder.root_path()) folder = folder.parent_path();
  return folder;
}

void append_line(const fs::path& path, std::string_view line) {
  const int file = open_file(path, O_CREAT | O_RDWR | O_APPEND);
  if (file < 0) fail(path);
  const off_t end = ::lseek(file, 0, SEEK_END);
  char last = '\n';
  if (end > 0 && ::pread(file, &last, 1, end - 1) != 1) last = '\n';
  const std::string text = fmt::format("{}{}\n", last == '\n' ? "" : "\n", line);
  const ssize_t written = ::write(file, text.data(), text.size());
  int error = written < 0 ? errno : ENOSPC;
  if (written == static_cast<ssize_t>(text.size())) error = ::fsync(file) == 0 ? 0 : errno;
  ::close(file);
  if (error != 0) fail(path, error);
}

void fail_to_write(const fs::path& path) { fail(path); }

std::string read_whole_file(const fs::path& path) {
  FileText read = read_file(path, kRecord.bytes);
  if (!read.problem) return std::move(read.text);
  throw std::runtime_error(fmt::format("{}: cannot be read ({})", path.string(), *read.problem));
}

}  // namespace shardlens
