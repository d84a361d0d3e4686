// Trains. Everything else in this folder is private to it.
#pragma once

#include <string>
#include <vector>

namespace shardlens::runtime {

/// `shardlens train`: flags as on the command line. Prints progress, one line where it fails.
/// Returns the exit code: 0 done, 1 failed, 2 wrong use. Dies of the signal that ended the run.
int train(const std::vector<std::string>& arguments);

}  // namespace shardlens::runtime
