#include "runtime/comm/board/shared_region.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace shardlens::runtime {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

[[noreturn]] void fail(const std::string& what, int error) {
  throw std::runtime_error(what + ": " + std::generic_category().message(error));
}

}  // namespace

SharedRegion::SharedRegion(int fd, size_t size_bytes) : fd_(fd), size_bytes_(size_bytes) {}

SharedRegion SharedRegion::create(size_t size_bytes) {
  check(size_bytes > 0, "shared region: size 0");
  const std::string what =
      "could not reserve " + std::to_string(size_bytes) + " bytes of memory shared between ranks";
  const int fd = memfd_create("shardlens", MFD_ALLOW_SEALING);  // no MFD_CLOEXEC: ranks inherit it
  if (fd < 0) fail(what, errno);
  SharedRegion region(fd, size_bytes);
  if (const int error = posix_fallocate(fd, 0, static_cast<off_t>(size_bytes))) fail(what, error);
  if (fcntl(fd, F_ADD_SEALS, kSeals) != 0) fail(what, errno);
  region.map();
  return region;
}

SharedRegion SharedRegion::attach(int fd, size_t size_bytes) {
  const std::string what =
      "file descriptor " + std::to_string(fd) + " is not this run's shared memory";
  struct stat status {};
  if (fstat(fd, &status) != 0) fail(what, errno);
  SharedRegion region(fd, size_bytes);
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) throw std::runtime_error(what + ": not sealed");
  if (static_cast<size_t>(status.st_size) != size_bytes) {
    throw std::runtime_error(what + ": it has " + std::to_string(status.st_size) + " bytes, not " +
                             std::to_string(size_bytes));
  }
  region.map();
  return region;
}

void SharedRegion::map() {
  void* memory = mmap(nullptr, size_bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
  if (memory == MAP_FAILED) fail("could not map memory shared between ranks", errno);
  data_ = static_cast<std::byte*>(memory);
}

SharedRegion::SharedRegion(SharedRegion&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

SharedRegion& SharedRegion::operator=(SharedRegion&& other) noexcept {
  if (this == &other) return *this;
  release();
  fd_ = std::exchange(other.fd_, -1);
  data_ = std::exchange(other.data_, nullptr);
  size_bytes_ = std::exchange(other.size_bytes_, 0);
  return *this;
}

SharedRegion::~SharedRegion() { release(); }

void SharedRegion::release() noexcept {
  if (data_ != nullptr) munmap(data_, size_bytes_);
  if (fd_ >= 0) close(fd_);
}

}  // namespace shardlens::runtime
