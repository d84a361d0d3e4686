// PyTorch's memory snapshots (torch.cuda.memory._snapshot, memory_viz) as recordings: a run of
// PyTorch can be reported, compared and drawn like one of ours.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "profiler/exchange/document.h"
#include "profiler/profile.h"

namespace shardlens::profiler {

/// `bytes` is a pickle of protocol 2 to 5 or JSON. Device memory ends when its free is requested,
/// as LibTorch's allocated_bytes count it; where the free is not completed at once, the block is
/// held until it is. What was alive before the history began comes first, at time 0. Labels are the
/// program's innermost Python frame, "file:line function"; without one PyTorch's innermost, without
/// that the innermost name. Categories are `other` unless an entry has one of ours.
///
/// `device` may be left out where only one has anything. Throws std::invalid_argument for what is
/// no snapshot, is damaged or unsafe, or has nothing of the device.
Profile import_memory_viz(std::string_view bytes, std::optional<int> device = std::nullopt);

/// The same of a file, which errors name.
Profile import_memory_viz_file(const std::string& path, std::optional<int> device = std::nullopt);

/// A pickle or JSON as data, and the same of that, for who has more to read from it.
Document read_snapshot(std::string_view bytes);
Profile import_snapshot(const Document& document, std::optional<int> device);

}  // namespace shardlens::profiler
