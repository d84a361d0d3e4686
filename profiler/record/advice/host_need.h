// Says what a recorded rank takes of its host's memory, and what the ranks of a node take together.
#pragma once

#include <optional>
#include <string>

#include "profiler/record/record_options.h"
#include "profiler/record/record_verdict.h"
#include "profiler/report/report.h"

namespace shardlens::profiler {

/// Returns nothing if the rank pins no memory, or if its memory was not sampled: then nothing that
/// is particular to the program is known to be on the host.
std::optional<HostNeed> host_need_of(const RecordOptions& options, const RankReport& report,
                                     const RecordFacts& facts);

/// Returns "on the host: 2.61 GiB, 1.00 GiB of these pinned; 8 ranks of a node take 20.88 GiB".
std::string host_need_text(const HostNeed& need);

}  // namespace shardlens::profiler
