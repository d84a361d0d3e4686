#include "runtime/interchange/mapped_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace shardlens::runtime {

namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, const char* why) {
  throw std::invalid_argument(
      fmt::format("{}: cannot be read ({}); give an existing file", path.string(), why));
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) refuse(path, std::strerror(errno));
  struct stat status {};
  const bool is_file = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  const auto size = static_cast<size_t>(is_file ? status.st_size : 0);
  void* const mapped =
      size > 0 ? ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0) : MAP_FAILED;
  ::close(file);
  if (!is_file) refuse(path, "not a regular file");
  if (mapped == MAP_FAILED) refuse(path, size > 0 ? std::strerror(errno) : "it is empty");
  bytes_ = {static_cast<const std::byte*>(mapped), size};
}

MappedFile::~MappedFile() { ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size()); }

}  // namespace shardlens::runtime
