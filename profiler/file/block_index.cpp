#include "profiler/file/block_index.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>

#include "base/checksum/crc32c.h"
#include "base/input_file.h"

namespace shardlens::profiler {

namespace {

constexpr size_t kFirstScanBytes = 1 << 10;
constexpr size_t kScanBytes = 1 << 20;

class Indexer {
 public:
  explicit Indexer(const File& file) : file_(file), size_(file.size()) {}

  BlockIndex run() {
    index_.file_bytes = size_;
    read_preamble();
    for (uint64_t at = sizeof(Preamble); at < size_;) {
      const std::optional<BlockHeader> header = header_at(at);
      at = header ? take_block(at, *header) : resync(at);
    }
    return std::move(index_);
  }

 private:
  void fault(uint64_t offset, const std::string& what, bool is_torn_tail = false) {
    const std::string line = fmt::format("offset {}: {}", offset, what);
    if (is_torn_tail) {
      index_.torn_tail = line;
    } else {
      index_.faults.push_back(line);
    }
  }

  void read_preamble() {
    Preamble& preamble = index_.preamble;
    file_.read(0, std::as_writable_bytes(std::span(&preamble, 1)));
    if (preamble.magic == kFileMagic && preamble.crc == crc_of(preamble)) return;
    fault(0, "the beginning of the file is damaged");
    preamble = {};
  }

  std::optional<BlockHeader> header_at(uint64_t at) const {
    BlockHeader header;
    if (file_.read(at, std::as_writable_bytes(std::span(&header, 1))) < sizeof header) return {};
    const bool sound = header.magic == kBlockMagic && header.header_crc == crc_of(header) &&
                       header.raw_bytes <= kMaxBlockBytes && header.stored_bytes <= kMaxBlockBytes;
    return sound ? std::optional(header) : std::nullopt;
  }

  /// Indexes a block and returns the offset of the next: after the payload if it is intact, else
  /// the next sound header, since it is unknown how many bytes of the payload exist.
  uint64_t take_block(uint64_t at, const BlockHeader& header) {
    IndexedBlock block{at, header, {}};
    const uint64_t payload_at = at + sizeof header;
    if (header.stored_bytes > unsound_left_) {
      return refuse(std::move(block), "skipped: too much of the file is damaged");
    }
    stored_.resize(std::min<uint64_t>(header.stored_bytes, size_ - payload_at));
    stored_.resize(file_.read(payload_at, stored_));
    const bool is_cut_off = stored_.size() < header.stored_bytes;
    Problem problem;
    if (is_cut_off) {
      problem = fmt::format("cut off: it has {} of {} bytes", stored_.size(), header.stored_bytes);
    } else if (crc32c(stored_) != header.payload_crc) {
      problem = "its checksum does not match its bytes";
    }
    if (problem) {
      unsound_left_ -= stored_.size();
      return refuse(std::move(block), *problem, is_cut_off);
    }
    index_.blocks.push_back(std::move(block));
    return payload_at + header.stored_bytes;
  }

  uint64_t refuse(IndexedBlock block, const std::string& problem, bool is_cut_off = false) {
    block.problem = problem;
    const uint64_t next = next_header(block.offset + sizeof block.header);
    fault(block.offset,
          fmt::format("block of {}, {} entries: {}", type_name(block.header.type),
                      block.header.count, problem),
          is_cut_off && next == size_);
    index_.blocks.push_back(std::move(block));
    return next;
  }

  uint64_t resync(uint64_t at) {
    const uint64_t next = next_header(at + 1);
    fault(at, fmt::format("{} bytes that do not form a block", next - at),
          next == size_ && next - at < sizeof(BlockHeader));
    return next;
  }

  /// Returns the first offset from `at` on with a sound header, or the end of the file if there is
  /// none.
  uint64_t next_header(uint64_t at) const {
    const ByteSpan magic = bytes_of(kBlockMagic);
    Bytes window;
    while (at < size_) {
      // The window is small at first: if many blocks are damaged, the next header is near.
      window.resize(std::clamp<size_t>(2 * window.size(), kFirstScanBytes, kScanBytes));
      const size_t bytes = file_.read(at, window);
      if (bytes < magic.size()) break;
      const auto end = window.begin() + static_cast<std::ptrdiff_t>(bytes);
      for (auto found = window.begin();; ++found) {
        found = std::search(found, end, magic.begin(), magic.end());
        if (found == end) break;
        const auto candidate = at + static_cast<uint64_t>(found - window.begin());
        if (header_at(candidate)) return candidate;
      }
      at += bytes - (magic.size() - 1);
    }
    return size_;
  }

  const File& file_;
  const uint64_t size_;
  BlockIndex index_;
  Bytes stored_;
  // Payloads that turn out to be damaged may overlap; at most this many bytes of them are still
  // read.
  uint64_t unsound_left_ = 8 * (size_ + kMaxBlockBytes);
};

}  // namespace

File open_recording(const std::string& path) {
  InputFile file(path);
  if (!file.is_open()) {
    throw std::invalid_argument(
        fmt::format("{}: cannot open this recording: {}", path, *file.problem()));
  }
  return File(file.release());
}

BlockIndex index_blocks(const File& file, const std::string& path) {
  BlockIndex index = Indexer(file).run();
  if (index.preamble.major != kMajor) {
    throw std::invalid_argument(
        fmt::format("{}: recording format {}.{}, but this program reads {}.x; use the version of "
                    "Shardlens that wrote it",
                    path, index.preamble.major, index.preamble.minor, kMajor));
  }
  const bool is_recording = index.blocks.size() > 0 || (index.faults.empty() && !index.torn_tail);
  if (!is_recording || index.file_bytes < sizeof(Preamble)) {
    throw std::invalid_argument(
        fmt::format("{}: not a recording of Shardlens ({} bytes)", path, index.file_bytes));
  }
  return index;
}

void read_payload(const File& file, const IndexedBlock& block, BlockCodec& codec, Bytes& payload) {
  if (block.problem) throw std::runtime_error(*block.problem);
  Bytes stored(block.header.stored_bytes);
  if (file.read(block.offset + sizeof(BlockHeader), stored) < stored.size()) {
    throw std::runtime_error("it can no longer be read");
  }
  codec.unpack(block.header, stored, payload);
}

std::string type_name(BlockType type) {
  switch (type) {
    case BlockType::header:
      return "header";
    case BlockType::strings:
      return "strings";
    case BlockType::events:
      return "events";
    case BlockType::snapshot:
      return "snapshot";
    case BlockType::end:
      return "end";
    case BlockType::work:
      return "work";
  }
  return fmt::format("type {}", static_cast<int>(type));
}

}  // namespace shardlens::profiler
