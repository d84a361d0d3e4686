// `shardlens profile export` and `import`, without a process around them.
#pragma once

#include <string>
#include <vector>

namespace shardlens::profiler {

/// RUN|FILE --format memory-viz|memory-viz-json|perfetto|csv|html [--rank R] [--points N] --out
/// PATH
///
/// csv writes PATH and, beside it, NAME.largest.csv for a PATH of NAME.csv. Files are written under
/// another name and renamed. Returns what is to be printed, a line a file. Throws
/// std::invalid_argument for wrong usage, std::runtime_error where a file cannot be read or
/// written.
std::string export_command(const std::vector<std::string>& arguments);

/// SNAPSHOT [--device N] --out FILE.slp; else as export_command.
std::string import_command(const std::vector<std::string>& arguments);

/// A line for each recording that is not whole, or that cannot be read at all, and why.
std::string judgements_of(const std::vector<std::string>& paths);

}  // namespace shardlens::profiler
