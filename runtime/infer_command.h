// `shardlens infer`: flags in, text or JSON out.
#pragma once

#include <string>
#include <vector>

namespace shardlens::runtime {

/// Flags behind `shardlens infer`. Returns what to print. Throws std::invalid_argument for wrong
/// use, std::exception where it failed; LibTorch's may have more lines than one.
std::string infer_command(const std::vector<std::string>& arguments);

}  // namespace shardlens::runtime
