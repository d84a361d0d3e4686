// Implements `shardlens checkpoint import`: makes one of our checkpoints from what PyTorch saved.
#pragma once

#include <string>
#include <vector>

namespace shardlens::runtime {

/// Runs `checkpoint import` with its arguments: SOURCE --out FOLDER, or SOURCE and the flags of
/// train, which then resumes the run with the same flags. Returns the lines for the user. Throws
/// std::invalid_argument for wrong use, if SOURCE is damaged, hostile or not as the manifest beside
/// it says, and if the model is not the one that the flags describe; then no file is made. Throws
/// std::runtime_error if a file cannot be written.
std::string import_checkpoint(const std::vector<std::string>& arguments);

}  // namespace shardlens::runtime
