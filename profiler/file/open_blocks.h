// Keeps the part of a recording that is not sealed yet, in a file beside it: PATH.open. Events are
// written there as they are in memory, through a shared mapping, so that they outlive the process,
// or by write(2) if the file system refuses such a mapping. The file is removed when the recording
// is closed.
//
// [Note: the life of a block]
//   1. begin() numbers a free block of the ring.
//   2. append() writes one event after the other, each with its checksum. With its first event the
//      block becomes the newest, and a reader that does not find the newest knows that events are
//      lost.
//   3. Once the block is full or a second old, the sealer's thread reads it while others are
//      written.
//   4. The sealer appends it to PATH as columns, compressed, with one checksum.
//   5. begin() gives it a new number, so that what it held no longer counts.
// A killed process leaves blocks in states 2 to 4. A reader takes a block from PATH if it is whole
// there, and otherwise its events from here; equal numbers mean that both are the same block.
//
// The file has a ring of blocks of raw events, each with a sequence number and the number of whole
// events, and two areas for strings that no sealed block has yet. Every event, area and count has a
// checksum, so that a reader can tell damage from written data. Its writer holds a lock on the
// file, by which a reader tells a growing recording from one whose process has ended. FORMAT.md
// describes the bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fault.h"
#include "profiler/file/file.h"
#include "profiler/recording/profile.h"

namespace shardlens::profiler {

struct OpenShape {
  uint32_t blocks = 0;
  uint32_t block_events = 0;
  uint32_t area_bytes = 0;  // of each of the two areas for strings
};

static_assert(sizeof(OpenShape) == 12, "it is the same in the file and in memory");

constexpr int kStringAreas = 2;

std::string open_blocks_path(const std::string& recording);

/// Writes the file. Calls for one block, one area or the lost events must not overlap.
class OpenBlocks {
 public:
  /// Creates the file and reserves the disk space for all blocks at once, so that it cannot run out
  /// later. Throws std::runtime_error if it cannot.
  OpenBlocks(const std::string& path, uint64_t id, OpenShape shape, bool map);
  ~OpenBlocks();
  OpenBlocks(const OpenBlocks&) = delete;
  OpenBlocks& operator=(const OpenBlocks&) = delete;

  void begin(uint32_t block, uint64_t sequence, uint64_t lost);
  /// Writes an event, which outlives the process once this has returned. Returns false if write(2)
  /// failed.
  bool append(uint32_t block, uint32_t index, const Event& event);
  std::span<const Event> events(uint32_t block, uint32_t count) const;

  /// Adds entries of strings (see put_string) to an area; returns false, and adds none, if they do
  /// not fit.
  bool add_strings(int area, std::span<const std::byte> entries);
  uint64_t area_used_bytes(int area) const;
  std::span<const std::byte> strings(int area) const;
  void clear_strings(int area);

  void set_lost(uint64_t events);
  void remove();

 private:
  size_t block_at(uint32_t block) const;
  size_t area_at(int area) const;
  bool store(size_t at, const void* bytes, size_t size);
  bool publish(size_t at, uint64_t number);
  uint64_t number_at(size_t at) const;
  uint64_t area_number(int area) const { return number_at(area_at(area)); }

  std::string path_;
  OpenShape shape_;
  File file_;
  std::vector<uint32_t> seeds_;  // the checksum of each block's head
  bool mapped_ = false;
  size_t size_ = 0;
  std::byte* memory_ = nullptr;  // the mapped file, or a copy if mapping is refused
};

/// The intact content of the file, whether it was sealed meanwhile or not.
struct OpenContents {
  struct Block {
    uint64_t sequence = 0;
    uint64_t lost = 0;  // before its first event
    std::vector<Event> events;
    bool is_whole = true;  // false: it is damaged after these events
  };
  bool found = false;
  bool has_writer = false;  // a live writer holds the file's lock
  uint64_t lost = 0;
  uint64_t newest = 0;        // the highest number of a block that has an event; 0: not known
  std::vector<Block> blocks;  // by rising sequence
  std::vector<std::pair<uint32_t, std::string>> strings;
  Problem problem;                  // why the file cannot be read; nothing: it can
  std::vector<std::string> faults;  // what is damaged, one line each
};

/// Reads the file. `id` is the recording's: the file of another recording is not read. Damage never
/// makes this throw.
OpenContents read_open_blocks(const std::string& path, uint64_t id);

}  // namespace shardlens::profiler
