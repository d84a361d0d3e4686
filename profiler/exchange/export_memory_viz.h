// A recording as the memory snapshot that PyTorch's viewer opens (memory_viz): what the caching
// allocator of the device did, every allocation with our words where a stack of Python would be,
// and its segments and blocks as they are at the end.
#pragma once

#include "profiler/exchange/document_writer.h"
#include "profiler/profile.h"

namespace shardlens::profiler {

/// The only frame of an event has the label for its name, the place in the run ("step 3, BACKWARD
/// attention2") for its file and the action's number for its line; -1: outside a pass. A free is
/// written as completed at once: a recording does not tell how long it waited for other streams.
/// Throws std::invalid_argument where the recording has no memory of a device.
void export_memory_viz(const Profile& profile, DocumentWriter& out);

}  // namespace shardlens::profiler
