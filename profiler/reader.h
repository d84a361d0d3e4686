// Reads the recording of one rank: closed, still being written, or left behind by a killed process.
// Damage never throws once the file is open: every intact block is read, and judgement() says what
// is missing and what the numbers are worth.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "profiler/judgement.h"
#include "profiler/profile.h"

namespace shardlens::profiler {

struct FileReport;

/// Block by block, in memory of one block whatever the length of the recording. What the file holds
/// is fixed when it is opened, also while somebody goes on writing. One thread at a time.
class Reader {
 public:
  /// Throws std::invalid_argument where there is no such file, it is no recording, or one of
  /// another major version; std::runtime_error where it cannot be read.
  explicit Reader(const std::string& path);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  const Header& header() const;
  /// All of them from the beginning on; every label that next() gives is one of them.
  const std::vector<std::string>& strings() const;
  /// How many next() gives from the beginning, if no block turns out to be damaged.
  int64_t stored_events() const;
  /// Complete once next() has given all events: some damage shows only when a block is read.
  Judgement judgement() const;

  /// Replaces `events` by those that follow, at least one; false at the end.
  ///
  /// Where blocks are missing, frees come of all memory that may have been freed in them: what is
  /// not in the next snapshot since the same moment. So whoever adds up events never has more than
  /// there was. Then the next snapshot comes as the events that lead to it, all at its time, and
  /// the sum is right again. Until then addresses may be freed though nobody saw them allocated.
  bool next(std::vector<Event>& events);

  /// Goes to the last snapshot at or before `time_ns`: next() first gives the phase, step and
  /// allocations of that moment, with the times at which they came about. The beginning where
  /// there is no such snapshot.
  void start_at(int64_t time_ns);

 private:
  friend FileReport check_profile(const std::string& path);

  class Recording;
  std::unique_ptr<Recording> recording_;
};

/// Everything at once. Throws as Reader does.
Profile read_profile(const std::string& path);

/// What `check` shows of one block.
struct BlockReport {
  uint64_t offset = 0;
  std::string type;        // "events", "snapshot", "strings", "header", "end" or "type N"
  uint64_t sequence = 0;   // of events; of a snapshot that of the events before it
  uint64_t bytes = 0;      // in the file
  uint64_t raw_bytes = 0;  // uncompressed
  uint32_t count = 0;      // of events or strings
  int64_t first_ns = 0;
  int64_t last_ns = 0;
  std::string problem;  // empty: intact
};

struct FileReport {
  int major = 0;
  int minor = 0;
  uint64_t bytes = 0;
  int64_t events = 0;       // that can be read
  int64_t open_events = 0;  // of these not sealed: in PATH.open
  int64_t lost_events = 0;
  bool closed = false;
  std::vector<BlockReport> blocks;
  std::vector<std::string> problems;  // one line each; empty: the file is whole and closed
};

/// Reads and decodes everything. Throws as Reader does.
FileReport check_profile(const std::string& path);

}  // namespace shardlens::profiler
