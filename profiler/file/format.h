// Defines the bytes of a recording's file, as FORMAT.md describes them: preamble, blocks, header
// fields. Writer and reader share it; no code outside profiler/ includes it. All numbers are little
// endian.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "profiler/recording/profile.h"

namespace shardlens::profiler {

static_assert(std::endian::native == std::endian::little, "numbers are written as in memory");

using Bytes = std::vector<std::byte>;
using ByteSpan = std::span<const std::byte>;

constexpr uint16_t kMajor = 1;  // a reader of another major refuses the file
constexpr uint16_t kMinor = 7;  // a reader of an older minor skips what it does not know

constexpr uint32_t kBlockMagic = 0x4B42'4C53;  // "SLBK"
constexpr std::array<char, 8> kFileMagic = {'S', 'L', 'P', '\r', '\n', '\x1a', '\n', '\0'};
constexpr std::array<char, 8> kOpenMagic = {'S', 'L', 'P', 'o', 'p', 'e', 'n', '\0'};

constexpr uint32_t kMaxBlockEvents = 1 << 20;
constexpr uint32_t kMaxBlockBytes = 64 << 20;  // of a payload, before and after compression
constexpr uint32_t kMaxStringBytes = 64 << 10;
constexpr uint32_t kMaxStrings = 1 << 20;
constexpr uint32_t kMaxFrames = 1 << 20;
constexpr int64_t kMaxTime_ns = int64_t{1} << 61;   // of an event: 73 years to either side
constexpr int64_t kMaxStart_ns = int64_t{1} << 62;  // of a recording's start: the year 2116

enum class BlockType : uint16_t { header = 1, strings, events, snapshot, end, work };
enum class Codec : uint16_t { raw, zstd };

/// The first bytes of a file.
struct Preamble {
  std::array<char, 8> magic = kFileMagic;
  uint16_t major = kMajor;
  uint16_t minor = kMinor;
  uint32_t reserved = 0;
  uint64_t id = 0;  // drawn when the recording began; the file of open blocks has the same
  uint32_t reserved_too = 0;
  uint32_t crc = 0;  // of the bytes before it
};
static_assert(sizeof(Preamble) == 32 && std::has_unique_object_representations_v<Preamble>,
              "padding would be written with undefined bytes");

struct BlockHeader {
  uint32_t magic = kBlockMagic;
  BlockType type{};
  Codec codec{};
  uint64_t sequence = 0;      // events: from 1, without a gap; snapshot: of the events before it;
                              // end: the number that the next events would have had
  int64_t first_ns = 0;       // of events: the smallest and
  int64_t last_ns = 0;        // the largest time
  uint32_t count = 0;         // events or strings
  uint32_t raw_bytes = 0;     // of the payload, uncompressed
  uint32_t stored_bytes = 0;  // of the payload as it follows
  uint32_t payload_crc = 0;   // of the payload as it follows
  uint64_t lost = 0;          // events lost before the first of this block
  uint32_t reserved = 0;
  uint32_t header_crc = 0;  // of the bytes before it
};
static_assert(sizeof(BlockHeader) == 64 && std::has_unique_object_representations_v<BlockHeader>,
              "padding would be written with undefined bytes");

template <class T>
ByteSpan bytes_of(const T& value) {
  static_assert(std::is_trivially_copyable_v<T>, "what is written holds no pointers of its own");
  return std::as_bytes(std::span(&value, 1));
}

/// Returns the checksum of a struct whose last field is that checksum.
template <class T>
uint32_t crc_of(const T& value);

template <class T>
void put(Bytes& bytes, const T& value) {
  const ByteSpan added = bytes_of(value);
  bytes.insert(bytes.end(), added.begin(), added.end());
}
void put_text(Bytes& bytes, std::string_view text);

/// Takes values from the front of bytes. A value beyond their end is zero, and `failed` is then
/// true.
struct ByteReader {
  ByteSpan rest;
  bool failed = false;

  template <class T>
  T take() {
    static_assert(std::is_trivially_copyable_v<T>, "any bytes of a file make a value");
    T value{};
    if (rest.size() < sizeof value) {
      failed = true;
      rest = {};
      return value;
    }
    std::memcpy(&value, rest.data(), sizeof value);
    rest = rest.subspan(sizeof value);
    return value;
  }
  std::string_view take_text(size_t bytes);
};

/// Encodes the header fields as {number, length, bytes}; a newer minor version may add numbers.
Bytes encode_header(const Header& header);
/// Decodes the header fields. Missing fields keep their defaults; returns false if the bytes end
/// inside a field.
bool decode_header(ByteSpan bytes, Header& header);

/// An entry of a block of strings. Its id is a string's, or a number marked as one of the kinds
/// below, which readers of 1.2 and older skip.
struct NumberedString {
  uint32_t id = 0;
  std::string_view text;
};
constexpr uint32_t kFrameEntry = 1U << 31;  // | the frame's number; its bytes are a StackFrame
constexpr uint32_t kStackEntry = 1U << 30;  // | a label; its bytes are the innermost frame's number
static_assert(kMaxStrings <= kStackEntry && kMaxFrames <= kStackEntry,
              "a number never reads as a kind of entry");
static_assert(sizeof(StackFrame) == 16 && std::has_unique_object_representations_v<StackFrame>);
constexpr size_t kStringHeadBytes = 2 * sizeof(uint32_t);  // id and length, before a text
/// Appends {id, length, bytes} without padding, so that strings can follow one another.
void put_string(Bytes& bytes, const NumberedString& string);
/// Returns the strings up to the first that is cut off. The texts point into `bytes`.
std::vector<NumberedString> decode_strings(ByteSpan bytes);

/// Compresses and decompresses blocks; it keeps zstd's memory from block to block. One thread at a
/// time may use it.
class BlockCodec {
 public:
  BlockCodec();
  ~BlockCodec();
  BlockCodec(const BlockCodec&) = delete;
  BlockCodec& operator=(const BlockCodec&) = delete;

  /// Returns header and payload, ready to be written. The caller must have set type, count and
  /// times of `header`.
  Bytes pack(BlockHeader header, ByteSpan payload);
  /// Replaces `payload` by the payload of an intact block; throws std::runtime_error with the
  /// fault.
  void unpack(const BlockHeader& header, ByteSpan stored, Bytes& payload);

 private:
  struct Contexts;
  std::unique_ptr<Contexts> contexts_;
};

}  // namespace shardlens::profiler
