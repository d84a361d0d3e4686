// Finds the blocks of a recording and tells which of them are intact. The reader steps over a
// damaged block: it finds the next one by its magic number and checksum.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/fault.h"
#include "profiler/file/file.h"
#include "profiler/file/format.h"

namespace shardlens::profiler {

struct IndexedBlock {
  uint64_t offset = 0;
  BlockHeader header;
  Problem problem;  // nothing: intact
};

struct BlockIndex {
  Preamble preamble;
  uint64_t file_bytes = 0;
  std::vector<IndexedBlock> blocks;  // by offset; only those with a whole header
  std::vector<std::string> faults;   // with offsets, one line each, in order
  Problem torn_tail;                 // at the end of the file; normal while it is written
};

/// Opens a recording; throws std::invalid_argument if it cannot.
File open_recording(const std::string& path);

/// Reads the whole file, each byte of an intact one once. Throws std::invalid_argument if the file
/// is not a recording, or has another major version; std::runtime_error if it cannot be read.
BlockIndex index_blocks(const File& file, const std::string& path);

/// Reads and unpacks the payload of an intact block. Throws std::runtime_error with the fault if it
/// is damaged.
void read_payload(const File& file, const IndexedBlock& block, BlockCodec& codec, Bytes& payload);

std::string type_name(BlockType type);

}  // namespace shardlens::profiler
