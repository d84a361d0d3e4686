// A file of somebody else's as mapped bytes. It may be read from several threads; do not truncate
// it meanwhile.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace shardlens::runtime {

class MappedFile {
 public:
  /// Throws std::invalid_argument where there is no such file, or it cannot be read.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace shardlens::runtime
