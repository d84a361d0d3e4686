// Checks for our own mistakes, on in release too. A failed check is a bug of ours, never the user's
// fault: mistakes of a user or a file are reported as std::invalid_argument or
// std::runtime_error.
//
// Where two places must agree, both have a check: the one that makes a promise, and the one that
// relies on it. A check costs no more than the work beside it; one that goes through a whole
// structure is at the end of a pass.
#pragma once

#include <stdexcept>
#include <string>

namespace shardlens {

/// Marks code that is never reached: after a switch over all values, or a search that always finds.
[[noreturn, gnu::cold, gnu::noinline]] inline void unreachable(const char* what) {
  throw std::logic_error(what);
}
[[noreturn]] inline void unreachable(const std::string& what) { unreachable(what.c_str()); }

constexpr void check(bool holds, const char* what) {
  if (!holds) unreachable(what);
}

/// Calls `describe` only where the check fails.
template <class Describe>
constexpr void check(bool holds, const Describe& describe) {
  if (!holds) unreachable(std::string(describe()));
}

}  // namespace shardlens
