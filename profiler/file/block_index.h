// Where the blocks of a recording are, and which of them are intact. A damaged one is stepped over:
// the next is found by its magic number and checksum.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/file/file.h"
#include "profiler/file/format.h"

namespace shardlens::profiler {

struct IndexedBlock {
  uint64_t offset = 0;
  BlockHeader header;
  std::string problem;  // empty: intact
};

struct BlockIndex {
  Preamble preamble;
  uint64_t file_bytes = 0;
  std::vector<IndexedBlock> blocks;  // by offset; only those with a whole header
  std::vector<std::string> faults;   // with offsets, one line each, in order
  std::string
      torn_tail;  // the fault of what reaches to the end of the file, as while it is written
};

/// Reads every byte once. Throws std::invalid_argument where this is no recording, or one of
/// another major version; std::runtime_error where it cannot be read.
BlockIndex index_blocks(const File& file, const std::string& path);

/// The payload of an intact block. Throws std::runtime_error with what is wrong with it.
void read_payload(const File& file, const IndexedBlock& block, BlockCodec& codec, Bytes& payload);

std::string type_name(BlockType type);

}  // namespace shardlens::profiler
