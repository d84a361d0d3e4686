// A file in memory, read-only, for as long as the object lives.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace shardlens::viewer {

class MappedFile {
 public:
  MappedFile() = default;
  /// Empty where there is no such file or it cannot be mapped.
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace shardlens::viewer
