// Zero-filled memory that the launcher and its ranks share: created by the launcher, handed to the
// ranks as an inherited file descriptor, mapped by each.
//
// The size is sealed, so no process can truncate the memory while another uses it. All memory is
// reserved at creation: too little memory is an error then, not a SIGBUS in a later step.
#pragma once

#include <cstddef>

namespace shardlens::runtime {

class SharedRegion {
 public:
  /// Creates a region of zeros. Throws std::runtime_error if the system has too little memory.
  static SharedRegion create(size_t size_bytes);
  /// Maps the region behind `fd`, and then owns `fd`. Throws std::runtime_error unless it is a
  /// region of exactly `size_bytes`.
  static SharedRegion attach(int fd, size_t size_bytes);

  SharedRegion(SharedRegion&& other) noexcept;
  SharedRegion& operator=(SharedRegion&& other) noexcept;
  ~SharedRegion();

  std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  /// Returns the descriptor, which survives exec.
  int fd() const { return fd_; }

 private:
  SharedRegion(int fd, size_t size_bytes);
  void map();
  void release() noexcept;

  int fd_ = -1;
  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
};

}  // namespace shardlens::runtime
