// Files that are there after a crash, or are not: synced before anybody is told of them.
//
// All functions throw Failure, disk_full or disk_failed, with path and reason where the disk fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "runtime/comm/fault.h"

namespace shardlens::runtime {

/// How names begin of what is being written, and gets its own name when it is whole.
constexpr const char* kTemporary = ".tmp-";

/// A file that several processes may write at once, each its own ranges.
class SharedFile {
 public:
  enum class Content { keep, drop };

  /// Opens or creates. What is there stays, where other processes may have written it.
  explicit SharedFile(std::filesystem::path path, Content content = Content::keep);
  SharedFile(SharedFile&& other) noexcept;
  SharedFile& operator=(SharedFile&&) = delete;
  ~SharedFile();

  void write_at(int64_t offset_bytes, std::span<const std::byte> data) const;
  void sync() const;

 private:
  std::filesystem::path path_;
  int file_;  // descriptor
};

/// What was created, renamed or removed in a folder is so for good.
void sync_folder(const std::filesystem::path& folder);

/// Makes the folder, and those above it, where they are missing.
void make_folders(const std::filesystem::path& folder);

/// Within one file system; both folders are synced.
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

/// Writes under a temporary name, syncs and renames: `path` is never half a file.
void write_file(const std::filesystem::path& path, const std::string& text);

/// Adds a line to a file, in one piece, and syncs. What a crash has left of a line is ended first.
void append_line(const std::filesystem::path& path, std::string_view line);

/// Syncs the copy, which has the time of the last write to `from`. Leaves nothing where it fails.
void copy_durably(const std::filesystem::path& from, const std::filesystem::path& to);

/// The path, or the nearest above it that is there; absolute.
std::filesystem::path nearest_folder(const std::filesystem::path& path);

/// For whoever writes in another way: Failure of the last system call, by errno.
[[noreturn]] void fail_to_write(const std::filesystem::path& path);

/// Throws std::runtime_error, too, where the file cannot be read.
std::string read_whole_file(const std::filesystem::path& path);

}  // namespace shardlens::runtime
