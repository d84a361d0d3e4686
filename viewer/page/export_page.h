// Writes a run as one page, for `shardlens profile export --format html`.
#pragma once

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

namespace shardlens::viewer {

/// Writes all ranks of a run, or the given one, or one recording. Throws std::invalid_argument for
/// anything that cannot be read.
void export_page(const std::string& source, std::optional<int32_t> rank, std::ostream& out);

}  // namespace shardlens::viewer
