#include "profiler/file/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace shardlens::profiler {

File::~File() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

File File::create(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (descriptor < 0) {
    throw std::runtime_error(fmt::format("cannot create {}: {}", path, std::strerror(errno)));
  }
  return File(descriptor);
}

uint64_t File::size() const {
  struct stat status {};
  return ::fstat(descriptor_, &status) == 0 ? static_cast<uint64_t>(status.st_size) : 0;
}

namespace {

struct flock whole_file(short type) {
  struct flock range {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  return range;
}

}  // namespace

void File::lock() const {
  struct flock range = whole_file(F_WRLCK);
  ::fcntl(descriptor_, F_OFD_SETLK, &range);
}

bool File::is_locked() const {
  struct flock range = whole_file(F_RDLCK);
  return ::fcntl(descriptor_, F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

size_t File::read(uint64_t at, std::span<std::byte> into) const {
  size_t done = 0;
  while (done < into.size()) {
    const ssize_t bytes =
        ::pread(descriptor_, into.data() + done, into.size() - done, static_cast<off_t>(at + done));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes <= 0) break;
    done += static_cast<size_t>(bytes);
  }
  return done;
}

bool File::write(uint64_t at, std::span<const std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(at));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(written));
    at += static_cast<uint64_t>(written);
  }
  return true;
}

}  // namespace shardlens::profiler
