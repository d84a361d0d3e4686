// What the host copied to the device and copies back before any kernel is launched: that much a
// device without values can know. PyTorch's DDP sends the order of its buckets to all ranks in this
// way, and goes by what comes back. Only where SHARDLENS_NULL_KEEP_COPIES is 1: see null_device.h.
#pragma once

#include <cstddef>

namespace shardlens::runtime {

/// Small ones are kept. All threads may call.
void keep_copy(const void* device_address, const void* source, size_t bytes);

/// False, and nothing is written, where the copy of these bytes is not kept.
bool give_kept_copy(void* target, const void* device_address, size_t bytes);

/// A kernel may change anything.
void forget_kept_copies();

}  // namespace shardlens::runtime
