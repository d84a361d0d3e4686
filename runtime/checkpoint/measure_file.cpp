#include "runtime/checkpoint/measure_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "base/checksum/crc32c.h"
#include "base/input_file.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kMeasuredChunkBytes = int64_t{4}
                                        << 20;  // the bytes that a thread takes at a time
constexpr int64_t kPieceBytes = kCrc32cPieceBytes;
constexpr int64_t kMostThreads = 8;

/// Computes the checksums of all chunks. Several threads read, since a single thread would
/// alternate between waiting for the disk and computing.
class Chunks {
 public:
  Chunks(const InputFile& file, int64_t bytes)
      : file_(file),
        bytes_(bytes),
        checksums_(static_cast<size_t>((bytes + kMeasuredChunkBytes - 1) / kMeasuredChunkBytes)) {}

  /// Reads all chunks. Returns false if the file cannot be read.
  bool measure() {
    const auto cores = static_cast<int64_t>(std::thread::hardware_concurrency());
    const int64_t threads = std::clamp<int64_t>(cores, 1, kMostThreads);
    std::vector<std::thread> others;
    for (int64_t i = 1; i < std::min(threads, count()); ++i) {
      others.emplace_back([this] { work(); });
    }
    work();
    for (std::thread& other : others) other.join();
    return !failed_;
  }

  uint32_t joined() const {
    uint32_t crc = 0;
    for (int64_t i = 0; i < count(); ++i) {
      crc =
          crc32c_joined(crc, checksums_[static_cast<size_t>(i)], static_cast<uint64_t>(size_of(i)));
    }
    return crc;
  }

 private:
  int64_t count() const { return static_cast<int64_t>(checksums_.size()); }
  int64_t size_of(int64_t chunk) const {
    return std::min(kMeasuredChunkBytes, bytes_ - chunk * kMeasuredChunkBytes);
  }

  void work() {
    std::vector<std::byte> buffer(static_cast<size_t>(std::min(kPieceBytes, bytes_)));
    for (int64_t chunk = next_++; chunk < count() && !failed_; chunk = next_++) {
      checksums_[static_cast<size_t>(chunk)] = sum(chunk, buffer);
    }
  }

  uint32_t sum(int64_t chunk, std::span<std::byte> buffer) {
    uint32_t crc = 0;
    for (int64_t at = 0; at < size_of(chunk) && !failed_; at += kPieceBytes) {
      const auto size = static_cast<size_t>(std::min(kPieceBytes, size_of(chunk) - at));
      const std::span<std::byte> piece = buffer.first(size);
      if (!file_.read_at(chunk * kMeasuredChunkBytes + at, piece)) failed_ = true;
      crc = crc32c(piece, crc);
    }
    return crc;
  }

  const InputFile& file_;
  int64_t bytes_;
  std::vector<uint32_t> checksums_;
  std::atomic<int64_t> next_ = 0;
  std::atomic<bool> failed_ = false;
};

}  // namespace

int64_t size_of(const fs::path& path) {
  const InputFile file(path);
  if (file.is_open()) return static_cast<int64_t>(file.bytes());
  throw std::runtime_error(fmt::format("{} is missing", path.filename().string()));
}

ManifestFile measure_file(const fs::path& path) {
  const std::string name = path.filename().string();
  const int64_t bytes = size_of(path);
  const InputFile file(path);
  Chunks chunks(file, bytes);
  if (!chunks.measure()) throw std::runtime_error(fmt::format("{} cannot be read", name));
  return {.name = name, .bytes = bytes, .crc32c = chunks.joined()};
}

}  // namespace shardlens::runtime
