// Reports a saved file that its reader cannot go on with. Every reader ends in this way.
#pragma once

#include <stdexcept>
#include <string>

namespace shardlens::runtime {

/// Throws std::runtime_error. `why` is a clause about the file, to which the caller adds the file's
/// name.
[[noreturn]] inline void damaged(const std::string& why) { throw std::runtime_error(why); }

}  // namespace shardlens::runtime
