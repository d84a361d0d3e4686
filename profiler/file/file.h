// An open file, with reads and writes that transfer all of their bytes at a given place.
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

  /// Creates an empty file, or empties the one at `path`, for reading and writing. Throws
  /// std::runtime_error if it cannot.
  static File create(const std::string& path);
  bool is_open() const { return descriptor_ >= 0; }
  int descriptor() const { return descriptor_; }
  uint64_t size() const;

  /// Locks the whole file until it is closed here and in every child that was forked meanwhile. If
  /// the file system has no locks, is_locked() finds none.
  void lock() const;
  /// True if another open file description holds the lock.
  bool is_locked() const;

  /// Reads from the offset `at` and returns the number of bytes read, which is less than asked for
  /// at the end of the file.
  size_t read(uint64_t at, std::span<std::byte> into) const;
  /// Writes at the offset `at`. Returns false, with errno set, if not all bytes could be written.
  bool write(uint64_t at, std::span<const std::byte> bytes) const;

 private:
  int descriptor_ = -1;
};

}  // namespace shardlens::profiler
