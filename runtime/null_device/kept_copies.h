// Keeps what the host copied to the device, so that it can be copied back before any kernel is
// launched: a device without values can know that much. PyTorch's DDP sends the order of its
// buckets to all ranks in this way, and goes by what comes back. Used only if
// SHARDLENS_NULL_KEEP_COPIES is 1: see null_device.h.
#pragma once

#include <cstddef>

namespace shardlens::runtime {

/// Keeps a copy of the bytes if there are few. All threads may call.
void keep_copy(const void* device_address, const void* source, size_t bytes);

/// Copies kept bytes to `target`. Returns false, and writes nothing, if these bytes are not kept.
bool give_kept_copy(void* target, const void* device_address, size_t bytes);

/// Forgets all copies, because a kernel may change any of them.
void forget_kept_copies();

}  // namespace shardlens::runtime
