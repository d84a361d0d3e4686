// Checks for our own mistakes, on in release too. A failed check is a bug of ours, never the user's
// fault.
#pragma once

#include <stdexcept>
#include <string>

namespace shardlens {

inline void check(bool holds, const char* what) {
  if (!holds) throw std::logic_error(what);
}

template <class Describe>
void check(bool holds, const Describe& describe) {
  if (!holds) throw std::logic_error(std::string(describe()));
}

}  // namespace shardlens
