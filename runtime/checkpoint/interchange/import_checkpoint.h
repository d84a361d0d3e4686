// Implements `shardlens checkpoint import`: makes a checkpoint of ours from what PyTorch has saved.
#pragma once

#include <string>
#include <vector>

namespace shardlens::runtime {

/// Runs `checkpoint import` with the arguments behind it: SOURCE --out FOLDER, or SOURCE and the
/// flags of train, which then goes on with it under the same flags. Returns what to tell the user.
/// Throws std::invalid_argument for wrong use, if SOURCE is damaged, hostile or not as the manifest
/// beside it says, and if the model is another than the flags say; no file is made then. Throws
/// std::runtime_error for what cannot be written.
std::string import_checkpoint(const std::vector<std::string>& arguments);

}  // namespace shardlens::runtime
