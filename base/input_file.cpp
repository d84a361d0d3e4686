#include "base/input_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "base/shown.h"

namespace shardlens {

namespace {

/// Returns why something that exists is not a regular file; nothing if it is one.
Problem kind_problem(mode_t mode) {
  if (S_ISREG(mode)) return std::nullopt;
  if (S_ISDIR(mode)) return "a folder, not a file";
  if (S_ISFIFO(mode)) return "a pipe, not a file";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device, not a file";
  if (S_ISSOCK(mode)) return "a socket, not a file";
  return "not a regular file";
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) {
    problem_ = std::strerror(errno);
    return;
  }
  problem_ = kind_problem(status.st_mode);
  if (problem_) return;
  // If a pipe or a terminal has taken the file's place meanwhile, the flags keep open() from
  // waiting, and the second check refuses it.
  descriptor_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor_ < 0 || ::fstat(descriptor_, &status) != 0) {
    problem_ = std::strerror(errno);
  } else {
    problem_ = kind_problem(status.st_mode);
    bytes_ = static_cast<uint64_t>(status.st_size);
  }
  if (problem_ && descriptor_ >= 0) ::close(std::exchange(descriptor_, -1));
}

InputFile::InputFile(InputFile&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      bytes_(other.bytes_),
      problem_(std::move(other.problem_)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(bytes_, other.bytes_);
  std::swap(problem_, other.problem_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int InputFile::release() { return std::exchange(descriptor_, -1); }

void InputFile::announce(int64_t offset_bytes, int64_t bytes) const {
  ::posix_fadvise(descriptor_, offset_bytes, bytes, POSIX_FADV_WILLNEED);
}

bool InputFile::read_at(int64_t offset_bytes, std::span<std::byte> into) const {
  while (!into.empty()) {
    const ssize_t read = ::pread(descriptor_, into.data(), into.size(), offset_bytes);
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) return false;
    offset_bytes += read;
    into = into.subspan(static_cast<size_t>(read));
  }
  return true;
}

MappedFile::MappedFile(const std::filesystem::path& path) {
  const InputFile file(path);
  problem_ = file.is_open() && file.bytes() == 0 ? "it is empty" : file.problem();
  if (problem_) return;
  void* const memory = ::mmap(nullptr, file.bytes(), PROT_READ, MAP_PRIVATE, file.descriptor(), 0);
  if (memory == MAP_FAILED) {
    problem_ = std::strerror(errno);
  } else {
    bytes_ = {static_cast<const std::byte*>(memory), file.bytes()};
  }
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), problem_(std::move(other.problem_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(problem_, other.problem_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

FileText read_file(const std::filesystem::path& path, uint64_t most_bytes) {
  const InputFile file(path);
  if (!file.is_open()) return {.text = {}, .problem = file.problem()};
  if (file.bytes() > most_bytes) {
    return {.text = {},
            .problem = fmt::format("has {} bytes; at most {} are read", file.bytes(), most_bytes)};
  }
  FileText read{.text = std::string(file.bytes(), '\0'), .problem = {}};
  if (!file.read_at(0, std::as_writable_bytes(std::span(read.text)))) {
    return {.text = {}, .problem = "it cannot be read to its end"};
  }
  return read;
}

std::string read_file(const std::filesystem::path& path, uint64_t most_bytes,
                      std::string_view advice) {
  FileText read = read_file(path, most_bytes);
  if (!read.problem) return std::move(read.text);
  throw std::invalid_argument(
      fmt::format("{}: cannot be read ({}); {}", shown(path.string()), *read.problem, advice));
}

}  // namespace shardlens
