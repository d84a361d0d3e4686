// `shardlens infer`: flags in, text or JSON out.
#pragma once

#include <string>
#include <vector>

namespace shardlens::runtime {

/// Flags behind `shardlens infer`. Prints; returns the exit code: 0, 1 where it failed, 2 for wrong
/// use, with one line that says how to mend it.
int infer_command(const std::vector<std::string>& arguments);

}  // namespace shardlens::runtime
