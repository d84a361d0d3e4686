// Where `shardlens record` has no recorder for a PyTorch it records PyTorch's own memory history,
// as runtime/record/python/shardlens_record/history.py leaves it when the program ends.
#pragma once

#include <string>

#include "profiler/exchange/document.h"
#include "profiler/profile.h"

namespace shardlens::profiler {

/// A snapshot of PyTorch's with a map "shardlens", which has the fields of a Header, the counters
/// "allocations", "frees" and "lost_events" at the end, and "marks": what the process has said of a
/// "step", or of the "category" of the block at an "address", each with the counters of that
/// moment, by which it takes its place among the events. A step begins with the allocation that
/// comes next. Throws std::invalid_argument where it is none, or is damaged.
Profile import_history(const Document& document);

/// Makes a recording of such a file, whole or not at all. Throws std::runtime_error where it cannot
/// be written, too.
void record_history(const std::string& history, const std::string& recording);

}  // namespace shardlens::profiler
