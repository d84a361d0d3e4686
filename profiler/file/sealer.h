// Turns open blocks into sealed ones: columns, compression, checksum, append to the recording, and
// a snapshot of the live allocations when one is due. One thread at a time may use it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "profiler/file/columns.h"
#include "profiler/file/file.h"
#include "profiler/file/format.h"
#include "profiler/file/live_set.h"
#include "profiler/file/work_layer.h"

namespace shardlens::profiler {

class Sealer {
 public:
  /// Creates the file with preamble and header. Throws std::runtime_error if it cannot.
  Sealer(const std::string& path, uint64_t id, const Header& header);

  // Each of these throws std::runtime_error if the disk fails, and leaves only whole blocks behind.
  void seal_strings(std::span<const std::byte> entries);
  void seal_events(uint64_t sequence, uint64_t lost, std::span<const Event> events);
  void seal_work(const WorkBlock& block);
  /// Writes the last block and flushes the file to the disk.
  void seal_end(uint64_t events, uint64_t lost);

  uint64_t bytes() const { return size_; }

 private:
  void append(const BlockHeader& header, ByteSpan payload);
  void write(ByteSpan bytes);
  void seal_snapshot(uint64_t sequence, int64_t time_ns);

  std::string path_;
  File file_;
  uint64_t size_ = 0;
  BlockCodec codec_;
  EventEncoder encoder_;
  LiveSet live_;
  uint64_t last_sequence_ = 0;
  uint64_t work_sequence_ = 0;
  uint64_t last_lost_ = 0;
  uint64_t events_since_snapshot_ = 0;
};

}  // namespace shardlens::profiler
