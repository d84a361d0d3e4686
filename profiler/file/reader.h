// Reads the recording of one rank: closed, still being written, or left behind by a killed process.
// Damage never throws once the file is open: every intact block is read, and judgement() says what
// is missing and what the numbers are worth.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/fault.h"
#include "profiler/recording/judgement.h"
#include "profiler/recording/profile.h"

namespace shardlens::profiler {

struct FileReport;

/// Reads events block by block, and holds one block in memory however long the recording is. The
/// content is fixed when the file is opened, even if its writer goes on. One thread at a time may
/// use it.
class Reader {
 public:
  /// Opens the recording. Throws std::invalid_argument if the file does not exist, is not a
  /// recording, or has another major version; std::runtime_error if it cannot be read.
  explicit Reader(const std::string& path);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  const Header& header() const;
  /// Returns all strings of the recording; every label that next() gives is a valid index into
  /// them.
  const std::vector<std::string>& strings() const;
  /// Returns the stacks of the labels. Every frame's caller has a lower index, and its strings
  /// exist, whatever a damaged file says.
  const Stacks& stacks() const;
  /// True if the recording has a trace of work, which read_work() of work_layer.h reads.
  bool has_work() const;
  /// Returns how many events next() gives from the beginning, if no block turns out to be damaged.
  int64_t stored_events() const;
  /// Returns the judgement so far, which is complete once next() has given all events: some damage
  /// shows only when a block is read.
  Judgement judgement() const;

  /// Replaces `events` by those that follow, at least one; returns false at the end.
  ///
  /// If blocks are missing, next() first gives a free for all memory that may have been freed in
  /// them, which is every block that the next snapshot has not had since the same moment. So a sum
  /// over the events never exceeds the truth. Then the next snapshot comes as the events that lead
  /// to it, all at its time, and the sum is right again. Until then, events may free addresses that
  /// were never seen allocated.
  bool next(std::vector<Event>& events);

  /// Moves to the last snapshot at or before `time_ns`: next() then first gives the phase, step and
  /// allocations of that moment, with the times at which these began. Moves to the beginning if
  /// there is no such snapshot.
  void start_at(int64_t time_ns);

 private:
  friend FileReport check_profile(const std::string& path);

  class Recording;
  std::unique_ptr<Recording> recording_;
};

/// Reads a whole recording into memory. Throws as Reader does.
Profile read_profile(const std::string& path);

/// One block's row in the output of `check`.
struct BlockReport {
  uint64_t offset = 0;
  std::string type;        // "events", "snapshot", "strings", "header", "end" or "type N"
  uint64_t sequence = 0;   // of events; a snapshot has that of the events before it
  uint64_t bytes = 0;      // in the file
  uint64_t raw_bytes = 0;  // uncompressed
  uint32_t count = 0;      // of events or strings
  int64_t first_ns = 0;
  int64_t last_ns = 0;
  Problem problem;  // nothing: intact
};

struct FileReport {
  int major = 0;
  int minor = 0;
  uint64_t bytes = 0;
  int64_t events = 0;       // that are readable
  int64_t open_events = 0;  // of these, not yet sealed, in PATH.open
  int64_t lost_events = 0;
  bool closed = false;
  std::vector<BlockReport> blocks;
  std::vector<std::string> problems;  // one line each; empty: the file is whole and closed
};

/// Reads and decodes every block, so that all damage shows. Throws as Reader does.
FileReport check_profile(const std::string& path);

}  // namespace shardlens::profiler
