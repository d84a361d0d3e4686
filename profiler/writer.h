// Writes the recording of one rank while it happens: PATH (usually rankN.slp), and PATH.open beside
// it until the recording is closed.
//
// append() copies the event into a shared mapping of PATH.open and returns: a process that is
// killed afterwards loses nothing of it. A thread of the writer's own seals full blocks into PATH,
// columnar and compressed. Nothing here throws into an allocator or waits for the disk: where
// blocks fill faster than they are sealed, events are counted as lost; where the disk fails, the
// recording stops and failure() says why.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "profiler/profile.h"

namespace shardlens::profiler {

struct WriterOptions {
  uint32_t block_events = 64 << 10;  // a block is sealed when it holds so many; at most 2^20
  uint32_t blocks = 16;              // that may be open or wait; 40 bytes of disk an event
  bool map = true;                   // false: write(2), about 1 us an event
  bool seals_old = true;             // also blocks that are not full, a second of recording later
  int64_t lost = 0;                  // events that were lost before they came here
};

struct WriterCounts {
  int64_t events = 0;  // recorded
  int64_t sealed = 0;  // of these in PATH; the others are in PATH.open
  int64_t lost = 0;
  int64_t bytes = 0;  // of PATH so far, with everything in it
};

class Writer {
 public:
  /// Replaces what is at `path`. Throws std::runtime_error where files cannot be made or the disk
  /// has no room for the open blocks, std::invalid_argument for options or a header too large.
  Writer(const std::string& path, const Header& header, WriterOptions options = {});
  /// Closes.
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// From any thread, also inside an allocator's lock. What comes after close() is dropped.
  void append(const Event& event) noexcept;

  /// The number of `text` in Profile::strings, the same for equal texts; on disk before it returns.
  /// 0, the empty string, where it cannot be kept now: its areas are full for a moment, there are a
  /// million strings, or the recording has stopped. Texts are cut at 64 KiB. From any thread.
  uint32_t intern(std::string_view text) noexcept;

  /// Seals what is open and removes PATH.open, unless the recording has failed. Once is enough.
  void close() noexcept;

  WriterCounts counts() const noexcept;
  /// Why the recording stopped; empty: it did not.
  std::string failure() const;

 private:
  class Recording;
  std::unique_ptr<Recording> recording_;
};

}  // namespace shardlens::profiler
