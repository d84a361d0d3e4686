#include "runtime/checkpoint/interchange/zip_reader.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "runtime/checkpoint/interchange/allowance.h"

namespace shardlens::runtime {

namespace {

using Bytes = std::span<const std::byte>;

// The format's signatures and record sizes.
constexpr uint32_t kLocal = 0x04034b50;
constexpr uint32_t kCentral = 0x02014b50;
constexpr uint32_t kEnd = 0x06054b50;
constexpr uint32_t kEnd64 = 0x06064b50;
constexpr uint32_t kLocator64 = 0x07064b50;
constexpr size_t kEndBytes = 22;
constexpr size_t kLocatorBytes = 20;

/// Reads from an offset on, never beyond the end.
class Cursor {
 public:
  Cursor(Bytes bytes, uint64_t at) : bytes_(bytes), at_(at) {
    if (at > bytes.size()) throw_damaged("the archive is cut off");
  }
  Bytes take(uint64_t count) {
    if (count > bytes_.size() - at_) throw_damaged("the archive is cut off");
    at_ += count;
    return bytes_.subspan(at_ - count, count);
  }
  uint64_t number(size_t width) {
    const Bytes bytes = take(width);
    uint64_t value = 0;
    for (size_t i = width; i-- > 0;) value = value << 8 | std::to_integer<uint64_t>(bytes[i]);
    return value;
  }
  void skip(uint64_t count) { take(count); }
  void expect(uint32_t signature, const char* what) {
    if (number(4) != signature)
      throw_damaged(fmt::format("there is no {} where it should be", what));
  }
  uint64_t position() const { return at_; }
  uint64_t remaining_bytes() const { return bytes_.size() - at_; }

 private:
  Bytes bytes_;
  uint64_t at_;
};

struct Directory {
  uint64_t begin = 0;
  uint64_t entries = 0;
};

uint32_t signature_at(Bytes archive, uint64_t at) {
  return static_cast<uint32_t>(Cursor(archive, at).number(4));
}

/// Returns where the last record of the archive begins; a comment may follow it.
uint64_t find_end(Bytes archive) {
  constexpr size_t kMostCommentBytes = 0xffff;
  if (archive.size() < kEndBytes) throw_damaged("it is too short for an archive");
  const uint64_t last = archive.size() - kEndBytes;
  const uint64_t first = last - std::min<uint64_t>(last, kMostCommentBytes);
  for (uint64_t at = last + 1; at-- > first;) {
    if (signature_at(archive, at) == kEnd) return at;
  }
  throw_damaged("it has no archive directory");
}

Directory find_directory(Bytes archive) {
  const uint64_t end = find_end(archive);
  if (end >= kLocatorBytes && signature_at(archive, end - kLocatorBytes) == kLocator64) {
    Cursor locator(archive, end - kLocatorBytes + 8);
    Cursor end64(archive, locator.number(8));
    end64.expect(kEnd64, "end of a large archive");
    end64.skip(8 + 2 + 2 + 4 + 4 + 8);
    const uint64_t entries = end64.number(8);
    end64.skip(8);
    return {.begin = end64.number(8), .entries = entries};
  }
  Cursor small(archive, end + 10);
  const uint64_t entries = small.number(2);
  small.skip(4);
  return {.begin = small.number(4), .entries = entries};
}

struct ZipEntry {
  std::string name;
  uint64_t bytes = 0;
  uint64_t packed_bytes = 0;
  uint64_t begin = 0;  // where its local header begins
  uint32_t crc = 0;
};

/// Reads the values that did not fit into 32 bits. They are in a separate field, in this order.
void widen(ZipEntry& entry, Bytes extra) {
  constexpr uint64_t kElsewhere = 0xffffffff;
  constexpr uint64_t kWide = 1;
  Cursor fields(extra, 0);
  while (fields.remaining_bytes() >= 4) {
    const uint64_t id = fields.number(2);
    Cursor field(fields.take(fields.number(2)), 0);
    if (id != kWide) continue;
    for (uint64_t* value : {&entry.bytes, &entry.packed_bytes, &entry.begin}) {
      if (*value == kElsewhere) *value = field.number(8);
    }
  }
}

ZipEntry read_entry(Cursor& directory) {
  ZipEntry entry;
  directory.expect(kCentral, "entry");
  directory.skip(4);
  const uint64_t flags = directory.number(2), method = directory.number(2);
  directory.skip(4);
  entry.crc = static_cast<uint32_t>(directory.number(4));
  entry.packed_bytes = directory.number(4);
  entry.bytes = directory.number(4);
  const uint64_t name_bytes = directory.number(2), extra_bytes = directory.number(2),
                 comment_bytes = directory.number(2);
  directory.skip(8);
  entry.begin = directory.number(4);
  const Bytes name = directory.take(name_bytes);
  entry.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
  widen(entry, directory.take(extra_bytes));
  directory.skip(comment_bytes);
  constexpr uint64_t kEncrypted = 1;
  if (method != 0 || (flags & kEncrypted) != 0 || entry.bytes != entry.packed_bytes) {
    throw_damaged("an entry is compressed or encrypted; torch.save stores them as they are");
  }
  return entry;
}

/// Says where an entry is in the archive, from its header to the end of its data.
struct Place {
  ZipEntry entry;
  uint64_t end = 0;
  Bytes data;
};

Place place_of(Bytes archive, ZipEntry entry) {
  Cursor local(archive, entry.begin);
  local.expect(kLocal, "entry's header");
  local.skip(22);
  const uint64_t name_bytes = local.number(2), extra_bytes = local.number(2);
  local.skip(name_bytes);
  local.skip(extra_bytes);
  const Bytes data = local.take(entry.bytes);
  return {.entry = std::move(entry), .end = local.position(), .data = data};
}

/// Throws if a byte belongs to two entries, so that checksumming all entries reads the archive only
/// once.
void expect_apart(std::vector<Place>& places) {
  std::ranges::sort(places, {}, [](const Place& place) { return place.entry.begin; });
  for (size_t i = 1; i < places.size(); ++i) {
    if (places[i].entry.begin < places[i - 1].end) throw_damaged("two entries share their bytes");
  }
}

void expect_sound(const Place& place) {
  const auto crc = static_cast<uint32_t>(
      ::crc32_z(0, reinterpret_cast<const Bytef*>(place.data.data()), place.data.size()));
  if (crc != place.entry.crc) throw_damaged("the checksum of an entry is wrong");
}

}  // namespace

ZipEntries read_zip(Bytes archive) {
  const Directory found = find_directory(archive);
  Cursor directory(archive, found.begin);
  std::vector<Place> places;
  for (uint64_t i = 0; i < found.entries; ++i) {
    places.push_back(place_of(archive, read_entry(directory)));
  }
  expect_apart(places);
  ZipEntries entries;
  for (Place& place : places) {
    expect_sound(place);
    std::string& name = place.entry.name;
    const size_t folder = name.find('/');
    if (folder != std::string::npos) name.erase(0, folder + 1);
    if (!entries.emplace(std::move(name), place.data).second)
      throw_damaged("two entries share a name");
  }
  return entries;
}

}  // namespace shardlens::runtime
