// A file that is read in pieces, by several threads if need be. Whoever reads a mapped file is
// killed where the disk fails; here it is told.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>

namespace shardlens::runtime {

class InputFile {
 public:
  explicit InputFile(const std::filesystem::path& path);
  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&&) = delete;
  ~InputFile();

  /// Nothing where it is no file that can be read.
  std::optional<int64_t> bytes() const;
  /// Lets the disk begin with what will be read: it has more to do at once.
  void announce(int64_t offset_bytes, int64_t bytes) const;
  /// Fills `into` from byte `offset_bytes` on. False where the file ends before, or the disk fails.
  bool read_at(int64_t offset_bytes, std::span<std::byte> into) const;

 private:
  int file_;  // descriptor, or negative
};

}  // namespace shardlens::runtime
