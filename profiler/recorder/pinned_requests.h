// Watches what tensors ask of LibTorch's pinned host allocator. It rounds requests up, to powers of
// two, and keeps what is freed: its own counters tell what it gives and holds, and only the
// requests tell what the program wanted.
#pragma once

#include <cstdint>

namespace shardlens::profiler {

/// Both are called on the thread that asks, while the allocator holds no lock.
struct PinnedRequestListener {
  void (*begins)();
  void (*served)(int64_t asked_bytes);  // by all pinned tensors that are alive
};

/// Begins to watch, for the life of the process. Returns false, and does nothing, if the allocator
/// of this LibTorch may have functions that are not known here.
bool watch_pinned_requests(const PinnedRequestListener& listener);

/// True while this thread is in such a request.
bool is_in_pinned_request();

}  // namespace shardlens::profiler
