// Writes a folder that torch.distributed.checkpoint.load takes, of tensors that are complete. Those
// above a GiB are cut into runs of rows, as ranks would have saved them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "models/safetensors.h"

namespace shardlens::runtime {

struct DcpTensor {
  std::vector<std::string> path;     // keys of nested dicts, the outermost first
  models::SafetensorsTensor tensor;  // F32
};

struct DcpValue {
  std::vector<std::string> path;
  std::string pickle;  // of a value without tensors
};

/// An entry of a list has its index for a key, which DCP keeps apart from text.
bool is_list_index(const std::string& key);

/// `folder` is there when all of it is on the disk. `most_piece_bytes` is for tests. Throws
/// std::invalid_argument where it is there already, std::runtime_error where the disk fails.
void write_dcp(const std::filesystem::path& folder, const std::vector<DcpTensor>& tensors,
               const std::vector<DcpValue>& values, int64_t most_piece_bytes = int64_t{1} << 30);

}  // namespace shardlens::runtime
