// Writes the recording of one rank while it happens: PATH (usually rankN.slp), and PATH.open beside
// it until the recording is closed.
//
// append() copies the event into a shared mapping of PATH.open and returns: if the process is
// killed afterwards, the event is not lost. The writer's own thread seals full blocks into PATH,
// columnar and compressed. No call throws into an allocator or waits for the disk: if blocks fill
// faster than they are sealed, events are counted as lost; if the disk fails, the recording stops
// and failure() says why.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/fault.h"
#include "profiler/file/work_layer.h"
#include "profiler/recording/profile.h"

namespace shardlens::profiler {

struct WriterOptions {
  uint32_t block_events = 64 << 10;  // a block is sealed when it has this many; at most 2^20
  uint32_t blocks = 16;              // open or waiting at once; 40 bytes of disk per event
  bool map = true;                   // false: write(2), about 1 us per event
  bool seals_old = true;             // a block that is not full is sealed after 1 s of recording
  int64_t lost = 0;                  // events lost before they reached this writer
};

struct WriterCounts {
  int64_t events = 0;  // recorded
  int64_t sealed = 0;  // of these, in PATH; the others are in PATH.open
  int64_t lost = 0;
  int64_t bytes = 0;  // of PATH so far, with everything in it
};

class Writer {
 public:
  /// Creates the files and replaces what is at `path`. Throws std::runtime_error if files cannot be
  /// created or the disk has no room for the open blocks, std::invalid_argument for bad options or
  /// a header that is too large.
  Writer(const std::string& path, const Header& header, WriterOptions options = {});
  /// Closes the recording.
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  /// Records an event. Any thread may call, also under an allocator's lock. Events after close()
  /// are dropped.
  void append(const Event& event) noexcept;

  /// Returns the number of `text` in Profile::strings, the same for equal texts; it is on disk
  /// before this returns. Returns 0, the empty string, if it cannot be kept now: its areas are full
  /// for a moment, there are a million strings, or the recording has stopped. Texts are cut at 64
  /// KiB. Any thread may call.
  uint32_t intern(std::string_view text) noexcept;
  /// Returns the number of a label, which differs from that of the same text with another stack:
  /// [Note: stacks] in profile.h. `innermost` is a number from frame(), or 0 for no stack.
  uint32_t intern(std::string_view text, uint32_t innermost) noexcept;
  /// Returns the number of a frame in Stacks::frames, the same for equal frames; `caller` is such a
  /// number, or 0. Returns 0 if it cannot be kept now, as intern() does. Any thread may call.
  uint32_t frame(const StackFrame& frame) noexcept;

  /// Adds a block of the trace of work, which is sealed soon, in the order of the calls.
  void append_work(WorkBlock block) noexcept;
  /// Waits until the blocks of the trace of work so far are in PATH. Returns false if the recording
  /// has stopped.
  bool settle_work() noexcept;

  /// Seals the open blocks and removes PATH.open, unless the recording has failed. Later calls do
  /// nothing.
  void close() noexcept;

  WriterCounts counts() const noexcept;
  /// Returns why the recording stopped; nothing if it did not.
  Problem failure() const;

 private:
  class Recording;
  std::unique_ptr<Recording> recording_;
};

}  // namespace shardlens::profiler
