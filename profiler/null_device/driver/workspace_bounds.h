// Workspaces of NVIDIA's libraries whose size only a GPU can tell. A stub that is asked for one
// gives an upper bound, and reports it here. PyTorch allocates the workspace next, on the same
// thread: the recorder of allocations asks here, and names it.
#pragma once

#include <cstdint>

namespace shardlens::profiler {

/// Describes sizes that are upper bounds. Its texts live as long as the process.
struct Bound {
  const char* of;     // "a workspace of cuFFT"
  const char* doubt;  // a line that says why it is a bound
};

}  // namespace shardlens::profiler

extern "C" {
/// Says that this thread's next allocation has `bytes` bytes, an upper bound. With 0 bytes there is
/// no such allocation, and only the doubt is kept. Stubs call it.
void shardlens_null_tell_bound(const shardlens::profiler::Bound* bound, uint64_t bytes);

/// Returns what this thread's next allocation is an upper bound of, and forgets it; null if it is
/// not a bound.
const char* shardlens_null_next_bound();

/// Returns the reported doubts, one line each, in a text that is valid until this thread's next
/// call.
const char* shardlens_null_bounds();
}
