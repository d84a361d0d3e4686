#include "viewer/page/export_page.h"

#include <fmt/format.h>

#include <stdexcept>
#include <vector>

#include "viewer/page/page.h"

namespace shardlens::viewer {

void export_page(const std::string& source, std::optional<int32_t> rank, std::ostream& out) {
  OpenedRuns opened = open_runs({source});
  if (!opened.messages.empty()) throw std::invalid_argument(opened.messages.front());
  std::vector<RankLane>& ranks = opened.runs.front().ranks;
  if (rank) std::erase_if(ranks, [&](const RankLane& one) { return one.lane.rank() != *rank; });
  if (ranks.empty()) {
    throw std::invalid_argument(
        fmt::format("--rank {}: {} has no recording of this rank", rank.value_or(0), source));
  }
  ViewState state;
  state.ranks = Ranks::each;
  write_page(opened.runs, state, out);
}

}  // namespace shardlens::viewer
