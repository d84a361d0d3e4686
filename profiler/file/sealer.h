// Turns open blocks into sealed ones: columns, compression, checksum, append to the recording, and
// a snapshot of what is live where one is due. Used by one thread at a time.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "profiler/file/columns.h"
#include "profiler/file/file.h"
#include "profiler/file/format.h"
#include "profiler/file/live_set.h"

namespace shardlens::profiler {

class Sealer {
 public:
  /// Makes the file with preamble and header. Throws std::runtime_error.
  Sealer(const std::string& path, uint64_t id, const Header& header);

  // Each throws std::runtime_error where the disk fails, and leaves only whole blocks behind.
  void seal_strings(std::span<const std::byte> entries);
  void seal_events(uint64_t sequence, uint64_t lost, std::span<const Event> events);
  /// The last block, and everything to the disk.
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
  uint64_t events_since_snapshot_ = 0;
};

}  // namespace shardlens::profiler
