// Writes files that are either whole or missing after a crash: they are synced before anybody
// learns of them.
//
// All functions throw Failure, disk_full or disk_failed, with path and reason if the disk fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/fault.h"

namespace shardlens {

/// The prefix of a file or folder that is being written. It gets its own name when it is whole.
constexpr const char* kTemporary = ".tmp-";
/// The prefix of a folder that is being removed.
constexpr const char* kRemoved = ".old-";

/// Writes a file that several processes may write at once, each its own ranges.
class SharedFile {
 public:
  enum class Content { keep, drop };

  /// Opens or creates the file. With Content::keep, what other processes may have written stays.
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

/// Syncs a folder, so that a crash undoes no creation, renaming or removal in it.
void sync_folder(const std::filesystem::path& folder);

/// Creates the folder, and those above it, if they are missing.
void make_folders(const std::filesystem::path& folder);

/// Renames within one file system, and syncs both folders.
void rename_durably(const std::filesystem::path& from, const std::filesystem::path& to);

/// Removes a folder in which another process may still create files. It is renamed to `aside`, on
/// the same file system, before the first of its files goes: after that the other process finds no
/// folder under the old name, so it can neither fill it again nor rename it when it is half
/// empty. A crash in between leaves `aside`, and so does a file that the other process had begun to
/// create; a later call with `aside` as both removes it. Does nothing if `folder` is missing.
void remove_aside(const std::filesystem::path& folder, const std::filesystem::path& aside);

/// Writes under a temporary name, syncs and renames, so `path` is never half a file.
void write_file(const std::filesystem::path& path, const std::string& text);

/// Adds a line to a file, in one piece, and syncs. If a crash has left half a line, that is ended
/// first.
void append_line(const std::filesystem::path& path, std::string_view line);

/// Copies a file and syncs the copy, which gets the modification time of `from`. Leaves nothing if
/// it fails.
void copy_durably(const std::filesystem::path& from, const std::filesystem::path& to);

/// Returns the path, or the nearest folder above it that exists, as an absolute path.
std::filesystem::path nearest_folder(const std::filesystem::path& path);

/// Throws the Failure of the last system call, by errno. It is for code that writes in another way.
[[noreturn]] void fail_to_write(const std::filesystem::path& path);

/// Returns the file's bytes. Throws std::runtime_error, too, if the file cannot be read.
std::string read_whole_file(const std::filesystem::path& path);

}  // namespace shardlens
