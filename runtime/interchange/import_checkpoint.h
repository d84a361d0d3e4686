// `shardlens checkpoint import`: what PyTorch has saved becomes a checkpoint of ours.
#pragma once

#include <string>
#include <vector>

namespace shardlens::runtime {

/// Arguments behind `checkpoint import`: SOURCE --out FOLDER, or SOURCE and the flags of train,
/// which then goes on with it under the same flags. Returns what to tell the user. Throws
/// std::invalid_argument for wrong use, where SOURCE is damaged, hostile or not as the manifest
/// beside it says, and where the model is another than the flags say; nothing is made then.
/// std::runtime_error for what cannot be written.
std::string import_checkpoint(const std::vector<std::string>& arguments);

}  // namespace shardlens::runtime
