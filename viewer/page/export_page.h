// Writes a run as one page, for `shardlens profile export --format html`.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

namespace shardlens::viewer {

/// Writes the ranks of a run, or the one that is given, or one recording. Throws
/// std::invalid_argument for what cannot be read.
void export_page(const std::string& source, std::optional<int32_t> rank, std::ostream& out);

}  // namespace shardlens::viewer
