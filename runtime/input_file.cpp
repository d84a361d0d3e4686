#include "runtime/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace shardlens::runtime {

InputFile::InputFile(const std::filesystem::path& path)
    : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}

InputFile::InputFile(InputFile&& other) noexcept : file_(std::exchange(other.file_, -1)) {}

InputFile::~InputFile() {
  if (file_ >= 0) ::close(file_);
}

std::optional<int64_t> InputFile::bytes() const {
  struct stat status {};
  const bool is_file = file_ >= 0 && ::fstat(file_, &status) == 0 && S_ISREG(status.st_mode);
  return is_file ? std::optional<int64_t>(status.st_size) : std::nullopt;
}

void InputFile::announce(int64_t offset_bytes, int64_t bytes) const {
  ::posix_fadvise(file_, offset_bytes, bytes, POSIX_FADV_WILLNEED);
}

bool InputFile::read_at(int64_t offset_bytes, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t read = ::pread(file_, into.data(), into.size(), offset_bytes);
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) return false;
    offset_bytes += read;
    into = into.subspan(static_cast<size_t>(read));
  }
  return true;
}

}  // namespace shardlens::runtime
