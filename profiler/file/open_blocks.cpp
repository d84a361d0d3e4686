#include "profiler/file/open_blocks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <new>
#include <stdexcept>

#include "input/input_file.h"
#include "profiler/file/crc32c.h"
#include "profiler/file/format.h"

namespace shardlens::profiler {

// A record is an Event as it lies in memory; FORMAT.md gives these places.
static_assert(sizeof(Event) == 40 && offsetof(Event, address) == 8 && offsetof(Event, value) == 16);
static_assert(offsetof(Event, action) == 24 && offsetof(Event, label) == 28);
static_assert(offsetof(Event, stream) == 32 && offsetof(Event, kind) == 34);
static_assert(offsetof(Event, space) == 35 && offsetof(Event, category) == 36);

namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kLostAt = 64;  // after the preamble
constexpr size_t kBlockHeadBytes = 64;
constexpr size_t kMaxBlocks = 1024;

struct OpenPreamble {
  std::array<char, 8> magic = kOpenMagic;
  uint16_t major = kMajor;
  uint16_t minor = kMinor;
  uint32_t record_bytes = sizeof(Event);
  uint64_t id = 0;
  OpenShape shape;
  uint32_t crc = 0;  // of the bytes before it
};
static_assert(sizeof(OpenPreamble) == 40);

uint32_t crc_of_preamble(const OpenPreamble& preamble) {
  return crc32c(bytes_of(preamble).first(offsetof(OpenPreamble, crc)));
}

/// At the beginning of a block.
struct OpenHead {
  uint64_t sequence = 0;  // 0: never used
  uint64_t count = 0;     // of whole events
  uint64_t lost = 0;
};

size_t round_up(size_t bytes) { return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes; }

size_t block_bytes(const OpenShape& shape) {
  return round_up(kBlockHeadBytes + size_t{shape.block_events} * sizeof(Event));
}
size_t area_place(const OpenShape& shape, int area) {
  return kPageBytes + static_cast<size_t>(area) * round_up(shape.area_bytes);
}
size_t block_place(const OpenShape& shape, uint32_t block) {
  return area_place(shape, kStringAreas) + block * block_bytes(shape);
}
size_t file_bytes(const OpenShape& shape) { return block_place(shape, shape.blocks); }

}  // namespace

std::string open_blocks_path(const std::string& recording) { return recording + ".open"; }

OpenBlocks::OpenBlocks(const std::string& path, uint64_t id, OpenShape shape, bool map)
    : path_(path), shape_(shape), file_(File::create(path)), size_(file_bytes(shape)) {
  const int error = ::posix_fallocate(file_.descriptor(), 0, static_cast<off_t>(size_));
  if (error != 0) {
    ::unlink(path.c_str());
    throw std::runtime_error(
        fmt::format("cannot reserve {} bytes for {}: {}", size_, path, std::strerror(error)));
  }
  const int flags = map ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS;
  void* memory =
      ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, flags, map ? file_.descriptor() : -1, 0);
  mapped_ = map && memory != MAP_FAILED;
  if (map && !mapped_) {
    memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  }
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = static_cast<std::byte*>(memory);
  OpenPreamble preamble{.id = id, .shape = shape};
  preamble.crc = crc_of_preamble(preamble);
  store(0, &preamble, sizeof preamble);
}

OpenBlocks::~OpenBlocks() { ::munmap(memory_, size_); }

size_t OpenBlocks::block_at(uint32_t block) const { return block_place(shape_, block); }
size_t OpenBlocks::area_at(int area) const { return area_place(shape_, area); }

bool OpenBlocks::store(size_t at, const void* bytes, size_t size) {
  std::memcpy(memory_ + at, bytes, size);
  return mapped_ || file_.write(at, {memory_ + at, size});
}

/// What was stored before counts from here on, also for who opens the file after a crash.
bool OpenBlocks::publish(size_t at, uint64_t number) {
  auto* place = reinterpret_cast<uint64_t*>(memory_ + at);
  std::atomic_ref<uint64_t>(*place).store(number, std::memory_order_release);
  return mapped_ || file_.write(at, {memory_ + at, sizeof number});
}

uint64_t OpenBlocks::number_at(size_t at) const {
  auto* place = reinterpret_cast<uint64_t*>(memory_ + at);
  return std::atomic_ref<uint64_t>(*place).load(std::memory_order_acquire);
}

void OpenBlocks::begin(uint32_t block, uint64_t sequence, uint64_t lost) {
  // A crash in between leaves an empty block with the number of one that is sealed.
  publish(block_at(block) + offsetof(OpenHead, count), 0);
  publish(block_at(block) + offsetof(OpenHead, lost), lost);
  publish(block_at(block) + offsetof(OpenHead, sequence), sequence);
}

bool OpenBlocks::append(uint32_t block, uint32_t index, const Event& event) {
  const size_t head = block_at(block);
  return store(head + kBlockHeadBytes + index * sizeof event, &event, sizeof event) &&
         publish(head + offsetof(OpenHead, count), uint64_t{index} + 1);
}

std::span<const Event> OpenBlocks::events(uint32_t block, uint32_t count) const {
  return {reinterpret_cast<const Event*>(memory_ + block_at(block) + kBlockHeadBytes), count};
}

bool OpenBlocks::add_string(int area, uint32_t id, std::string_view text) {
  const uint64_t used = area_used_bytes(area);
  Bytes entry;
  put_string(entry, {id, text});
  if (sizeof used + used + entry.size() > shape_.area_bytes) return false;
  return store(area_at(area) + sizeof used + used, entry.data(), entry.size()) &&
         publish(area_at(area), used + entry.size());
}

uint64_t OpenBlocks::area_used_bytes(int area) const { return number_at(area_at(area)); }

std::span<const std::byte> OpenBlocks::strings(int area) const {
  return {memory_ + area_at(area) + sizeof(uint64_t), area_used_bytes(area)};
}

void OpenBlocks::clear_strings(int area) { publish(area_at(area), 0); }

void OpenBlocks::set_lost(uint64_t events) { publish(kLostAt, events); }

void OpenBlocks::remove() { ::unlink(path_.c_str()); }

namespace {

class OpenReader {
 public:
  explicit OpenReader(const std::string& path) : file_(input::InputFile(path).release()) {}

  bool is_open() const { return file_.is_open(); }

  /// Empty where the file is this recording's and sound.
  std::string problem(uint64_t id) {
    if (read_at<OpenPreamble>(0, preamble_) < sizeof preamble_) return "it has no whole beginning";
    const OpenShape& shape = preamble_.shape;
    const bool sound = preamble_.magic == kOpenMagic && preamble_.crc == crc_of_preamble(preamble_);
    if (!sound) return "its beginning is damaged";
    if (preamble_.id != id) return "it belongs to another recording";
    if (preamble_.major != kMajor) return "another version wrote it";
    if (preamble_.record_bytes != sizeof(Event)) return "its events have another size";
    if (shape.blocks > kMaxBlocks || shape.block_events > kMaxBlockEvents ||
        shape.area_bytes > kMaxBlockBytes) {
      return "it names a size that no version writes";
    }
    return "";
  }

  void read_all(OpenContents& contents) {
    read_at(kLostAt, contents.lost);
    for (int area = 0; area < kStringAreas; ++area) read_strings(area, contents);
    for (uint32_t block = 0; block < preamble_.shape.blocks; ++block) read_block(block, contents);
    std::ranges::sort(contents.blocks, {}, &OpenContents::Block::sequence);
  }

 private:
  template <class T>
  size_t read_at(size_t at, T& value) const {
    return file_.read(at, std::as_writable_bytes(std::span(&value, 1)));
  }

  void read_strings(int area, OpenContents& contents) const {
    const size_t at = area_place(preamble_.shape, area);
    uint64_t used = 0;
    read_at(at, used);
    Bytes bytes(std::min<uint64_t>(used, preamble_.shape.area_bytes));
    bytes.resize(file_.read(at + sizeof used, bytes));
    uint64_t after = 0;
    read_at(at, after);
    if (after < used) return;
    for (const NumberedString& string : decode_strings(bytes)) {
      contents.strings.emplace_back(string.id, string.text);
    }
  }

  /// Twice its head: what changed meanwhile was sealed, and stands in the recording itself.
  void read_block(uint32_t block, OpenContents& contents) const {
    const size_t at = block_place(preamble_.shape, block);
    OpenHead head;
    read_at(at, head);
    if (head.sequence == 0 || head.count == 0) return;
    OpenContents::Block found{.sequence = head.sequence, .lost = head.lost, .events = {}};
    found.events.resize(std::min<uint64_t>(head.count, preamble_.shape.block_events));
    const size_t bytes =
        file_.read(at + kBlockHeadBytes, std::as_writable_bytes(std::span(found.events)));
    OpenHead after;
    read_at(at, after);
    if (after.sequence != head.sequence) return;
    found.events.resize(bytes / sizeof(Event));
    std::erase_if(found.events, [](const Event& event) {
      return static_cast<int>(event.kind) >= kEventKinds ||
             static_cast<int>(event.space) >= kSpaces ||
             static_cast<int>(event.category) >= kCategories;
    });
    contents.blocks.push_back(std::move(found));
  }

  File file_;
  OpenPreamble preamble_;
};

}  // namespace

OpenContents read_open_blocks(const std::string& path, uint64_t id) {
  OpenContents contents;
  OpenReader reader(path);
  if (!reader.is_open()) return contents;
  contents.problem = reader.problem(id);
  contents.found = contents.problem.empty();
  if (contents.found) reader.read_all(contents);
  return contents;
}

}  // namespace shardlens::profiler
