// How every reader of a saved file ends that cannot go on.
#pragma once

#include <stdexcept>
#include <string>

namespace shardlens::runtime {

/// `why` is a clause about the file, to which the caller adds the file's name.
[[noreturn]] inline void damaged(const std::string& why) { throw std::runtime_error(why); }

}  // namespace shardlens::runtime
