// An open file and whole reads and writes at a place in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace shardlens::profiler {

class File {
 public:
  File() = default;
  explicit File(int descriptor) : descriptor_(descriptor) {}
  ~File();
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }

  /// Empty, for reading and writing. Throws std::runtime_error.
  static File create(const std::string& path);
  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  uint64_t size() const;

  /// Holds the whole file until it is closed here and in every child that was forked meanwhile.
  /// Where the file system has no locks, nobody sees one.
  void lock() const;
  /// True where somebody else holds it.
  bool is_locked() const;

  /// How many bytes were there to read.
  size_t read(uint64_t at, std::span<std::byte> into) const;
  /// False with errno set where not all could be written.
  bool write(uint64_t at, std::span<const std::byte> bytes) const;

 private:
  int descriptor_ = -1;
};

}  // namespace shardlens::profiler
