// Imports PyTorch's memory snapshots (torch.cuda.memory._snapshot, memory_viz) as recordings, so
// that a run of PyTorch can be reported, compared and drawn like one of ours.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/document/document.h"
#include "profiler/recording/profile.h"

namespace shardlens::profiler {

/// Imports `bytes`, a pickle of protocol 2 to 5 or JSON: a whole snapshot, or the list of segments
/// that torch.cuda.memory_snapshot() gives. Device memory ends when its free is
/// requested, as in LibTorch's allocated_bytes; if the free is not completed at once, the block is
/// held until it is. What was there before the history began comes first, at time 0: segments and
/// blocks with their places and sizes, as snapshot_rewind.h finds them. What the snapshot leaves
/// open counts as lost events, and the notice says why. A label is the program's innermost Python
/// frame, "file:line function"; without one, PyTorch's innermost frame; without that, the innermost
/// name. Categories are `other` unless an entry has one of ours.
///
/// `device` may be left out if only one device has any entry. Throws std::invalid_argument if the
/// bytes are not a snapshot, are damaged or unsafe, or have no entry of the device.
Profile import_memory_viz(std::string_view bytes, std::optional<int> device = std::nullopt);

/// Imports a snapshot from a file, whose name is part of every error.
Profile import_memory_viz_file(const std::string& path, std::optional<int> device = std::nullopt);

/// True if a file looks like a snapshot by its first bytes: a pickle, or JSON that begins with one
/// of its keys or with a list of segments.
bool is_memory_viz(const std::string& path);

/// read_snapshot parses a pickle or JSON, and import_snapshot imports the result: for callers that
/// also read other parts of the document.
Document read_snapshot(std::string_view bytes);
Profile import_snapshot(const Document& document, std::optional<int> device);

}  // namespace shardlens::profiler
