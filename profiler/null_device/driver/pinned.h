// Pinned memory of the null device, which takes no memory of the host until the program writes to
// it: what a GPU would write is unknown, and zeros take no memory. All threads may call.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shardlens::profiler {

/// Receives pinned memory that is given or taken back, on the thread that asked.
using PinnedListener = void (*)(bool given, uint64_t address, uint64_t bytes);

}  // namespace shardlens::profiler

extern "C" {
/// Makes the bytes zero and gives their memory back. Returns false, and does nothing, if they are
/// not within one range of pinned memory that the driver gave.
bool shardlens_null_clear_pinned(void* target, size_t bytes);

/// Returns the bytes of pinned memory that take none of the host's, although they would with a GPU.
uint64_t shardlens_null_untouched_pinned_bytes();

/// Sets the only listener, which first receives what was given before; null removes it.
void shardlens_null_listen_to_pinned(shardlens::profiler::PinnedListener listener);
}
