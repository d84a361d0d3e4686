// `shardlens profile export` and `import`, without a process around them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "profiler/exchange/export_perfetto.h"

namespace shardlens::profiler {

/// Writes a run or recording, or one of its ranks, as a page; the viewer implements it.
using PageWriter =
    std::function<void(const std::string& source, std::optional<int32_t> rank, std::ostream& out)>;

/// The parts of an export that other rooms implement.
struct Exporters {
  PageWriter write_page = {};
  SimulateStep simulate_step = {};  // empty: traces have no simulated steps
};

/// Exports recordings; the arguments are RUN|FILE --format
/// memory-viz|memory-viz-json|perfetto|csv|html [--rank R] [--points N] --out PATH, or
/// RUN|FILE --tensorboard DIR [--rank R].
///
/// TensorBoard gets a file in a folder of each rank. The format csv writes PATH and, beside it,
/// NAME.largest.csv for a PATH of NAME.csv. Files are written under another name and then renamed.
/// Returns the text to print, a line for each file. Throws std::invalid_argument for wrong usage,
/// std::runtime_error if a file cannot be read or written.
std::string export_command(const std::vector<std::string>& arguments, const Exporters& exporters);

/// Imports a snapshot; the arguments are SNAPSHOT [--device N] --out FILE.slp. Returns and throws
/// as export_command does.
std::string import_command(const std::vector<std::string>& arguments);

/// Returns a line with the reason for each recording that is not whole or cannot be read at all.
std::string judgements_of(const std::vector<std::string>& paths);

}  // namespace shardlens::profiler
