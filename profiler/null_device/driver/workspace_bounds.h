// Workspaces of NVIDIA's libraries whose size only a GPU tells. A stub that is asked for one gives
// an upper bound, and says so here. PyTorch allocates it next, on the same thread: who records
// allocations asks here, and names it.
#pragma once

#include <cstdint>

namespace shardlens::profiler {

/// Describes sizes that are upper bounds. Its texts live as long as the process.
struct Bound {
  const char* of;     // "a workspace of cuFFT"
  const char* doubt;  // a line that says why it is one
};

}  // namespace shardlens::profiler

extern "C" {
/// Says that this thread's next allocation is of `bytes` bytes, an upper bound. With 0 bytes there
/// is none, and only the doubt is kept. Stubs call it.
void shardlens_null_tell_bound(const shardlens::profiler::Bound* bound, uint64_t bytes);

/// Returns what this thread's next allocation is an upper bound of, and forgets it; null: of
/// nothing.
const char* shardlens_null_next_bound();

/// Returns the doubts that were told, a line each, in a text that is valid until this thread's next
/// call.
const char* shardlens_null_bounds();
}
