// Imports PyTorch's own memory history, which `shardlens record` uses if it has no recorder for the
// program's PyTorch. profiler/record/python/shardlens_record/history.py writes it when the program
// ends.
#pragma once

#include <string>

#include "base/document/document.h"
#include "profiler/recording/profile.h"

namespace shardlens::profiler {

/// Imports a PyTorch snapshot that has a map "shardlens". The map has the fields of a Header, the
/// counters "allocations", "frees" and "lost_events" at the end, and "marks": each says that a
/// "step" begins, or gives the "category" of the block at an "address", with the counters at its
/// moment, which tell its place among the events. A step begins with the next allocation. Throws
/// std::invalid_argument if the document is not such a snapshot, or is damaged.
Profile import_history(const Document& document);

/// Makes a recording of such a file, which is whole or does not appear. Throws as import_history
/// does, and std::runtime_error if it cannot be written.
void record_history(const std::string& history, const std::string& recording);

}  // namespace shardlens::profiler
