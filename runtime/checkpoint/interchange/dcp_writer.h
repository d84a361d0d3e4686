// Writes a folder of complete tensors that torch.distributed.checkpoint.load can read. Tensors
// above 1 GiB are cut into runs of rows, as ranks would have saved them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "models/weights/safetensors.h"

namespace shardlens::runtime {

struct DcpTensor {
  std::vector<std::string> path;     // keys of nested dicts, the outermost first
  models::SafetensorsTensor tensor;  // F32
};

struct DcpValue {
  std::vector<std::string> path;
  std::string pickle;  // of a value without tensors
};

/// True if the key is an index into a list, which DCP distinguishes from text.
bool is_list_index(const std::string& key);

/// Writes the tensors and values. `folder` appears under its name once all files are on the disk.
/// `most_piece_bytes` is for tests. Throws std::invalid_argument if the folder exists already,
/// std::runtime_error if the disk fails.
void write_dcp(const std::filesystem::path& folder, const std::vector<DcpTensor>& tensors,
               const std::vector<DcpValue>& values, int64_t most_piece_bytes = int64_t{1} << 30);

}  // namespace shardlens::runtime
