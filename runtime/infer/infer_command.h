// Implements `shardlens infer`: flags in, text or JSON out.
#pragma once

#include <string>
#include <vector>

namespace shardlens::runtime {

/// Runs `shardlens infer` with its flags, and returns what to print. Throws std::invalid_argument
/// for wrong use, std::exception if it failed; LibTorch's may have more than one line.
std::string infer_command(const std::vector<std::string>& arguments);

}  // namespace shardlens::runtime
