// Files that others wrote, opened for reading. Only regular files are: a pipe, a device, a socket
// or a folder is refused before it is opened, since the first two may never end and the others hold
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

namespace shardlens::input {

/// A file that is read in pieces, by several threads if need be. Whoever reads a mapped file is
/// killed where the disk fails; here it is told.
class InputFile {
 public:
  InputFile() = default;
  /// Not open where there is no regular file that can be read; problem() says why.
  explicit InputFile(const std::filesystem::path& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  ~InputFile();

  bool is_open() const { return descriptor_ >= 0; }
  /// "No such file or directory", "a pipe, not a file": empty where it is open.
  const std::string& problem() const { return problem_; }
  int descriptor() const { return descriptor_; }
  /// Hands the descriptor to somebody else who closes it; -1 where it is not open.
  int release();

  /// As large as it was when it was opened.
  uint64_t bytes() const { return bytes_; }
  /// Lets the disk begin with what will be read: it has more to do at once.
  void announce(int64_t offset_bytes, int64_t bytes) const;
  /// Fills `into` from byte `offset_bytes` on. False where the file ends before, or the disk fails.
  bool read_at(int64_t offset_bytes, std::span<std::byte> into) const;

 private:
  int descriptor_ = -1;
  uint64_t bytes_ = 0;
  std::string problem_;
};

/// A file as mapped bytes, for as long as the object lives. It may be read from several threads; do
/// not truncate it meanwhile.
class MappedFile {
 public:
  MappedFile() = default;
  /// No bytes where there is no regular file that can be mapped, or it is empty; problem() says
  /// why.
  explicit MappedFile(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& problem() const { return problem_; }

 private:
  std::span<const std::byte> bytes_;
  std::string problem_;
};

/// All of a file, or why it was not read.
struct FileText {
  std::string text;
  std::string problem;  // empty: it was read
};

/// As many bytes as it has when it is opened; none of a file with more than `most_bytes`.
FileText read_file(const std::filesystem::path& path, uint64_t most_bytes);

/// The same; throws std::invalid_argument: "PATH: cannot be read (PROBLEM); ADVICE".
std::string read_file(const std::filesystem::path& path, uint64_t most_bytes,
                      std::string_view advice);

}  // namespace shardlens::input
