// Exports a recording as the memory snapshot that PyTorch's viewer opens (memory_viz): the history
// of the device's caching allocator, with our words in place of a Python stack for every
// allocation, and its segments and blocks as they are at the end.
#pragma once

#include "base/document/document_writer.h"
#include "profiler/recording/profile.h"

namespace shardlens::profiler {

/// Writes the snapshot. The only frame of an event has the label as its name, the place in the run
/// ("step 3, BACKWARD attention2") as its file and the action's number as its line; -1: outside a
/// pass. A free is written as completed at once, since a recording does not tell how long it waited
/// for other streams. Throws std::invalid_argument if the recording has no device memory.
void export_memory_viz(const Profile& profile, DocumentWriter& out);

}  // namespace shardlens::profiler
