// Opens untrusted files for reading. Only regular files are opened: a pipe, a device, a
// socket or a folder is refused before that, since the first two may never end and the others hold
// no bytes. So a file's size is known before its first byte is read.
//
// Files of the system (/proc, /sys) have no size and are not for this header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include "base/fault.h"

namespace shardlens {

/// A file that is read in pieces, by several threads if need be. If the disk fails, a reader of a
/// mapped file is killed; here reads return false.
class InputFile {
 public:
  InputFile() = default;
  /// Opens a file. It stays closed if there is no regular file that can be read; problem() says
  /// why.
  explicit InputFile(const std::filesystem::path& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  bool is_open() const { return descriptor_ >= 0; }
  /// Returns why the file is not open, as in "No such file or directory", "a pipe, not a file";
  /// nothing if it is.
  const Problem& problem() const { return problem_; }
  int descriptor() const { return descriptor_; }
  /// Hands the descriptor to a caller that closes it; returns -1 if the file is not open.
  int release();

  /// Returns the size that the file had when it was opened.
  uint64_t bytes() const { return bytes_; }
  /// Tells the disk what will be read, so that it can read ahead and do more at once.
  void announce(int64_t offset_bytes, int64_t bytes) const;
  /// Fills `into` from byte `offset_bytes` on. Returns false if the file ends before, or the disk
  /// fails.
  bool read_at(int64_t offset_bytes, std::span<std::byte> into) const;

 private:
  int descriptor_ = -1;
  uint64_t bytes_ = 0;
  Problem problem_;
};

/// A file as mapped bytes, for as long as the object lives. Several threads may read it; do not
/// truncate the file meanwhile.
class MappedFile {
 public:
  MappedFile() = default;
  /// Maps a file. There are no bytes if there is no regular file that can be mapped, or it is
  /// empty; problem() says why.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  const Problem& problem() const { return problem_; }

 private:
  std::span<const std::byte> bytes_;
  Problem problem_;
};

/// The content of a file, or the reason why it was not read.
struct FileText {
  std::string text;
  Problem problem;  // nothing: it was read
};

/// Reads as many bytes as the file has when it is opened, but none if it has more than
/// `most_bytes`.
FileText read_file(const std::filesystem::path& path, uint64_t most_bytes);

/// Returns the text, or throws std::invalid_argument: "PATH: cannot be read (PROBLEM); ADVICE".
std::string read_file(const std::filesystem::path& path, uint64_t most_bytes,
                      std::string_view advice);

}  // namespace shardlens
