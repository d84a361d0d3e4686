// Makes a report from a recording's file, with the reader and the analysis together.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "profiler/file/reader.h"
#include "profiler/program/holders.h"
#include "profiler/recording/peak_bands.h"
#include "profiler/report/report.h"

namespace shardlens::profiler {

/// Facts that `shardlens record` keeps in rankR.json beside rankR.slp.
struct RecordingNotes {
  std::optional<int64_t> beside_bytes;              // of the GPU, taken by others than PyTorch
  std::optional<PeakBands> bands;                   // over orders of the driver's addresses
  std::map<std::string, std::string> fingerprints;  // of the program's files
  std::vector<HoldingVariable> holders;             // of what grows
};

/// Returns the notes of a recording; empty ones if it has none.
RecordingNotes notes_beside(const std::string& recording);

/// Ends the analysis of all events that `reader` has read from `path`, and adds the notes. A
/// program without steps is read again: its rounds begin at a line that is known only now.
RankReport finish_report(Analysis& analysis, const Reader& reader, const std::string& path);

/// Reads the file at `path` block by block, so that only what is alive is in memory. The report's
/// `source` is the path. Throws as Reader does.
RankReport report_of(const std::string& path);

}  // namespace shardlens::profiler
