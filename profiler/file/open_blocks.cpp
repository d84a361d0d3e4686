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
#include <type_traits>

#include "base/check.h"
#include "base/checksum/crc32c.h"
#include "base/input_file.h"
#include "base/units.h"
#include "profiler/file/format.h"

namespace shardlens::profiler {

// A record is an Event as it is in memory. FORMAT.md promises these offsets.
static_assert(std::is_trivially_copyable_v<Event>);
static_assert(sizeof(Event) == 40 && offsetof(Event, address) == 8 && offsetof(Event, value) == 16);
static_assert(offsetof(Event, action) == 24 && offsetof(Event, label) == 28);
static_assert(offsetof(Event, stream) == 32 && offsetof(Event, kind) == 34);
static_assert(offsetof(Event, space) == 35 && offsetof(Event, category) == 36);

namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kLostAt = 64;  // after the preamble
constexpr size_t kNewestAt = 72;
constexpr size_t kBlockHeadBytes = 64;
constexpr size_t kMaxBlocks = 1024;
constexpr uint16_t kCheckedMinor = 2;   // from this version on, there are checksums
constexpr uint16_t kNewestMinor = 4;    // from this one on, the newest block's number
constexpr size_t kChecksAtOnce = 4096;  // events
constexpr int kMostTries = 8;           // to read an area that its writer is changing

struct OpenPreamble {
  std::array<char, 8> magic = kOpenMagic;
  uint16_t major = kMajor;
  uint16_t minor = kMinor;
  uint32_t record_bytes = sizeof(Event);
  uint64_t id = 0;
  OpenShape shape;
  uint32_t crc = 0;  // of the bytes before it
};
static_assert(sizeof(OpenPreamble) == 40 && std::has_unique_object_representations_v<OpenPreamble>);
static_assert(offsetof(OpenPreamble, crc) + sizeof(uint32_t) == sizeof(OpenPreamble));
static_assert(sizeof(OpenPreamble) <= kLostAt && kLostAt + sizeof(uint64_t) <= kNewestAt &&
                  kNewestAt + sizeof(uint64_t) <= kPageBytes,
              "the preamble and the numbers behind it do not overlap");

uint32_t crc_of_preamble(const OpenPreamble& preamble) {
  return crc32c(bytes_of(preamble).first(offsetof(OpenPreamble, crc)));
}

/// The head of a block.
struct OpenHead {
  uint64_t sequence = 0;  // 0: never used
  uint64_t count = 0;     // of whole events
  uint64_t lost = 0;
};
static_assert(sizeof(OpenHead) == 24 && sizeof(OpenHead) <= kBlockHeadBytes &&
              std::has_unique_object_representations_v<OpenHead>);
static_assert(kLostAt % alignof(uint64_t) == 0 && kNewestAt % alignof(uint64_t) == 0 &&
                  kBlockHeadBytes % alignof(Event) == 0 &&
                  std::atomic_ref<uint64_t>::is_always_lock_free,
              "numbers are published by one store, also to another process");

// Every checked value shares a word or a record with its checksum, so that no crash separates them.

constexpr int kNumberBits = 40;
constexpr uint64_t kMostNumber = (uint64_t{1} << kNumberBits) - 1;
constexpr uint32_t kCheckMask = 0xFF'FFFF;
constexpr size_t kCheckAt = 37;  // in a record, after the category: 3 bytes
static_assert(kCheckAt == offsetof(Event, category) + 1);
static_assert(kCheckMask >> (8 * (sizeof(Event) - kCheckAt)) == 0 &&
                  kCheckMask >> (64 - kNumberBits) == 0,
              "a checksum has room behind what it checks");

/// Packs a number, in 40 bits, below 24 bits of its checksum.
uint64_t checked_word(uint64_t any) {
  const uint64_t number = std::min(any, kMostNumber);
  return number | uint64_t{crc32c(bytes_of(number)) & kCheckMask} << kNumberBits;
}

/// Packs the number of bytes in use with the checksum of these bytes in the upper half.
uint64_t area_word(uint32_t used, uint32_t crc) { return uint64_t{crc} << 32 | used; }
uint32_t used_of(uint64_t word) { return static_cast<uint32_t>(word); }
uint32_t crc_of_area(uint64_t word) { return static_cast<uint32_t>(word >> 32); }

using Record = std::array<std::byte, sizeof(Event)>;

/// Returns the seed of a block's checksums. An event counts only for the block with this head:
/// events left over from an earlier use of the block do not pass for new ones.
uint32_t seed_of(uint64_t sequence, uint64_t lost) {
  return crc32c(bytes_of(lost), crc32c(bytes_of(sequence)));
}

/// Returns the checksum of a record that has zeros where its checksum goes.
uint32_t check_of(const Record& record, uint32_t seed) {
  return crc32c(std::span(record), seed) & kCheckMask;
}

Record checked_record(const Event& event, uint32_t seed) {
  Record record{};
  std::memcpy(record.data(), &event, kCheckAt);
  const uint32_t check = check_of(record, seed);
  std::memcpy(record.data() + kCheckAt, &check, record.size() - kCheckAt);
  return record;
}

bool is_intact(const Event& event, uint32_t seed) {
  Record record{};
  std::memcpy(record.data(), &event, kCheckAt);
  uint32_t check = 0;
  const auto* bytes = reinterpret_cast<const std::byte*>(&event);
  std::memcpy(&check, bytes + kCheckAt, sizeof event - kCheckAt);
  return check == check_of(record, seed);
}

bool is_known(const Event& event) {
  return static_cast<int>(event.kind) < kEventKinds && static_cast<int>(event.space) < kSpaces &&
         static_cast<int>(event.category) < kCategories;
}

size_t whole_pages(size_t bytes) {
  return static_cast<size_t>(round_up(static_cast<int64_t>(bytes), kPageBytes));
}

size_t block_bytes(const OpenShape& shape) {
  return whole_pages(kBlockHeadBytes + size_t{shape.block_events} * sizeof(Event));
}
size_t area_place(const OpenShape& shape, int area) {
  return kPageBytes + static_cast<size_t>(area) * whole_pages(shape.area_bytes);
}
size_t block_place(const OpenShape& shape, uint32_t block) {
  return area_place(shape, kStringAreas) + block * block_bytes(shape);
}
size_t file_bytes(const OpenShape& shape) { return block_place(shape, shape.blocks); }

}  // namespace

std::string open_blocks_path(const std::string& recording) { return recording + ".open"; }

OpenBlocks::OpenBlocks(const std::string& path, uint64_t id, OpenShape shape, bool map)
    : path_(path),
      shape_(shape),
      file_(File::create(path)),
      seeds_(shape.blocks),
      size_(file_bytes(shape)) {
  // A reader refuses a file of other sizes.
  check(shape.blocks > 0 && shape.blocks <= kMaxBlocks, "open blocks: none, or too many");
  check(shape.block_events > 0 && shape.block_events <= kMaxBlockEvents,
        "open blocks: a block without events, or with too many");
  check(shape.area_bytes >= sizeof(uint64_t) && shape.area_bytes <= kMaxBlockBytes,
        "open blocks: an area without room, or with too much");
  file_.lock();
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
  set_lost(0);
  publish(kNewestAt, checked_word(0));
  store(0, &preamble, sizeof preamble);
}

OpenBlocks::~OpenBlocks() { ::munmap(memory_, size_); }

size_t OpenBlocks::block_at(uint32_t block) const { return block_place(shape_, block); }
size_t OpenBlocks::area_at(int area) const { return area_place(shape_, area); }

bool OpenBlocks::store(size_t at, const void* bytes, size_t size) {
  std::memcpy(memory_ + at, bytes, size);
  return mapped_ || file_.write(at, {memory_ + at, size});
}

/// Publishes a number: everything stored before counts from here on, also for a reader that opens
/// the file after a crash.
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
  // A crash between these leaves an empty block with the number of a sealed one.
  publish(block_at(block) + offsetof(OpenHead, count), 0);
  publish(block_at(block) + offsetof(OpenHead, lost), lost);
  publish(block_at(block) + offsetof(OpenHead, sequence), sequence);
  seeds_[block] = seed_of(sequence, lost);
}

bool OpenBlocks::append(uint32_t block, uint32_t index, const Event& event) {
  const size_t at = block_at(block);
  const Record record = checked_record(event, seeds_[block]);
  const bool is_kept =
      store(at + kBlockHeadBytes + index * record.size(), record.data(), record.size()) &&
      publish(at + offsetof(OpenHead, count), uint64_t{index} + 1);
  if (index > 0 || !is_kept) return is_kept;
  return publish(kNewestAt, checked_word(number_at(at + offsetof(OpenHead, sequence))));
}

std::span<const Event> OpenBlocks::events(uint32_t block, uint32_t count) const {
  return {reinterpret_cast<const Event*>(memory_ + block_at(block) + kBlockHeadBytes), count};
}

bool OpenBlocks::add_strings(int area, std::span<const std::byte> entries) {
  const uint64_t word = area_number(area);
  const uint32_t used = used_of(word);
  if (sizeof word + used + entries.size() > shape_.area_bytes) return false;
  const auto now_used = static_cast<uint32_t>(used + entries.size());
  return store(area_at(area) + sizeof word + used, entries.data(), entries.size()) &&
         publish(area_at(area), area_word(now_used, crc32c(entries, crc_of_area(word))));
}

uint64_t OpenBlocks::area_used_bytes(int area) const { return used_of(area_number(area)); }

std::span<const std::byte> OpenBlocks::strings(int area) const {
  return {memory_ + area_at(area) + sizeof(uint64_t), area_used_bytes(area)};
}

void OpenBlocks::clear_strings(int area) { publish(area_at(area), area_word(0, crc32c({}))); }

void OpenBlocks::set_lost(uint64_t events) { publish(kLostAt, checked_word(events)); }

void OpenBlocks::remove() { ::unlink(path_.c_str()); }

namespace {

class OpenReader {
 public:
  explicit OpenReader(const std::string& path) : file_(InputFile(path).release()) {}

  bool is_open() const { return file_.is_open(); }

  /// Returns why the file cannot be read; nothing if it is this recording's and sound.
  Problem problem(uint64_t id) {
    if (read_at<OpenPreamble>(0, preamble_) < sizeof preamble_) return "its beginning is cut off";
    const OpenShape& shape = preamble_.shape;
    const bool sound = preamble_.magic == kOpenMagic && preamble_.crc == crc_of_preamble(preamble_);
    if (!sound) return "its beginning is damaged";
    if (preamble_.id != id) return "it belongs to another recording";
    if (preamble_.major != kMajor) return "another version wrote it";
    if (preamble_.record_bytes != sizeof(Event)) return "its events have another size";
    if (shape.blocks > kMaxBlocks || shape.block_events > kMaxBlockEvents ||
        shape.area_bytes > kMaxBlockBytes) {
      return "it claims a size that no version writes";
    }
    return std::nullopt;
  }

  void read_all(OpenContents& contents) {
    contents.has_writer = file_.is_locked();
    if (file_.size() < file_bytes(preamble_.shape)) {
      contents.faults.push_back(fmt::format("the .open file is cut off: it has {} of {} bytes",
                                            file_.size(), file_bytes(preamble_.shape)));
    }
    read_numbers(contents);
    for (int area = 0; area < kStringAreas; ++area) read_strings(area, contents);
    for (uint32_t block = 0; block < preamble_.shape.blocks; ++block) read_block(block, contents);
    std::ranges::sort(contents.blocks, {}, &OpenContents::Block::sequence);
  }

 private:
  template <class T>
  size_t read_at(size_t at, T& value) const {
    return file_.read(at, std::as_writable_bytes(std::span(&value, 1)));
  }

  bool is_checked() const { return preamble_.minor >= kCheckedMinor; }

  void read_numbers(OpenContents& contents) const {
    if (!is_checked()) {
      read_at(kLostAt, contents.lost);
      return;
    }
    contents.lost = read_number(kLostAt, "lost events", contents);
    if (preamble_.minor < kNewestMinor) return;
    contents.newest = read_number(kNewestAt, "the newest block", contents);
  }

  /// Returns 0, and notes a fault, if the number there does not have its checksum.
  uint64_t read_number(size_t at, std::string_view name, OpenContents& contents) const {
    uint64_t word = 0;
    read_at(at, word);
    const uint64_t number = word & kMostNumber;
    if (word == checked_word(number)) return number;
    contents.faults.push_back(fmt::format("the number of {} in the .open file is damaged", name));
    return 0;
  }

  /// Reads an area repeatedly, until its checksum fits or its words before and after agree, which
  /// shows that it has not changed meanwhile.
  void read_strings(int area, OpenContents& contents) const {
    for (int tries = 0; tries < kMostTries; ++tries) {
      const size_t at = area_place(preamble_.shape, area);
      uint64_t word = 0;
      read_at(at, word);
      Bytes bytes(std::min<uint64_t>(used_of(word), preamble_.shape.area_bytes));
      bytes.resize(file_.read(at + sizeof word, bytes));
      uint64_t after = 0;
      read_at(at, after);
      const bool is_sound =
          !is_checked() || (bytes.size() == used_of(word) && crc32c(bytes) == crc_of_area(word));
      if (!is_sound && after != word) continue;
      if (!is_sound) contents.faults.push_back("strings in the .open file are damaged");
      if (!is_sound || used_of(after) < used_of(word)) return;
      for (const NumberedString& string : decode_strings(bytes)) {
        contents.strings.emplace_back(string.id, string.text);
      }
      return;
    }
  }

  /// Reads a block between two readings of its head: a block whose head has changed meanwhile was
  /// sealed, and is in the recording itself.
  void read_block(uint32_t block, OpenContents& contents) const {
    const size_t at = block_place(preamble_.shape, block);
    OpenHead head;
    read_at(at, head);
    if (head.sequence == 0 && head.count == 0) return;
    OpenContents::Block found{.sequence = head.sequence, .lost = head.lost, .events = {}};
    if (is_checked()) {
      read_intact_events(at, seed_of(head.sequence, head.lost), found);
    } else {
      found.events = counted_events(at, head.count);
    }
    OpenHead after;
    read_at(at, after);
    const bool is_same = after.sequence == head.sequence && after.lost == head.lost;
    if (!is_same || after.count < head.count) return;
    const size_t intact = found.events.size();
    found.is_whole = found.is_whole && intact >= head.count;
    if (!found.is_whole) {
      const std::string of_all =
          head.count > intact ? fmt::format("of its {} events", head.count) : "events";
      contents.faults.push_back(
          fmt::format("events block {} in the .open file is damaged after {} {}", head.sequence,
                      intact, of_all));
    }
    if (head.sequence == 0 || (head.count == 0 && found.events.empty())) return;
    std::erase_if(found.events, [](const Event& event) { return !is_known(event); });
    contents.blocks.push_back(std::move(found));
  }

  /// Reads the events up to the first that was not written for this block; the count in its head
  /// may not include the last one yet. The block is damaged if an event behind that one was written
  /// for this block, and this is still so when both are read again: a writer may have added both
  /// meanwhile.
  void read_intact_events(size_t block_at, uint32_t seed, OpenContents::Block& found) const {
    const auto is_of_block = [&](const Event& event) { return is_intact(event, seed); };
    for (bool is_again = false;;) {
      const std::vector<Event> next = records(block_at, found.events.size());
      const auto end = std::ranges::find_if_not(next, is_of_block);
      found.events.insert(found.events.end(), next.begin(), end);
      const bool is_stuck = end == next.begin();
      found.is_whole = !is_stuck || std::ranges::none_of(next, is_of_block);
      if (is_stuck && (found.is_whole || is_again)) return;
      is_again = is_stuck;
    }
  }

  /// Reads the records of a block from the one numbered `first` on: a few thousand, or all that are
  /// left.
  std::vector<Event> records(size_t block_at, size_t first) const {
    std::vector<Event> read(std::min(kChecksAtOnce, preamble_.shape.block_events - first));
    const size_t bytes = file_.read(block_at + kBlockHeadBytes + first * sizeof(Event),
                                    std::as_writable_bytes(std::span(read)));
    read.resize(bytes / sizeof(Event));
    return read;
  }

  /// Returns the first `count` events, for versions that wrote no checksums.
  std::vector<Event> counted_events(size_t block_at, uint64_t count) const {
    std::vector<Event> events(std::min<uint64_t>(count, preamble_.shape.block_events));
    const size_t bytes =
        file_.read(block_at + kBlockHeadBytes, std::as_writable_bytes(std::span(events)));
    events.resize(bytes / sizeof(Event));
    return events;
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
  contents.found = !contents.problem;
  if (contents.found) reader.read_all(contents);
  return contents;
}

}  // namespace shardlens::profiler
