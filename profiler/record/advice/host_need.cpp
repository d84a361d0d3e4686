#include "profiler/record/advice/host_need.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/gpus.h"
#include "base/units.h"

namespace shardlens::profiler {

namespace {

int ranks_on_node(const RecordOptions& options, int world_size, const RecordFacts& facts) {
  if (world_size == 1) return 1;
  int ranks = 0;
  for (const GpuGroup& one : facts.communicators) ranks = std::max(ranks, one.on_node);
  if (ranks > 0) return ranks;
  const bool knows_nodes = options.world_size || options.gpus_per_node;
  return std::min(world_size, knows_nodes ? options.gpus() : kGpusANode);
}

}  // namespace

std::optional<HostNeed> host_need_of(const RecordOptions& options, const RankReport& report,
                                     const RecordFacts& facts) {
  const auto largest = [&](Counter counter) {
    return report.counters[static_cast<size_t>(counter)].largest;
  };
  const auto& driver = report.spaces[static_cast<size_t>(Space::pinned)];
  const int64_t pinned =
      std::max(largest(Counter::pinned_held), driver ? driver->peak_bytes : int64_t{0});
  const int64_t resident = largest(Counter::resident_host);
  if (pinned == 0 || resident == 0) return std::nullopt;
  return HostNeed{.rank_bytes = std::max(resident, pinned),
                  .pinned_bytes = pinned,
                  .ranks_on_node = ranks_on_node(options, report.header.world_size, facts)};
}

std::string host_need_text(const HostNeed& need) {
  std::string text = fmt::format("on the host: {}, {} of these pinned", bytes_text(need.rank_bytes),
                                 bytes_text(need.pinned_bytes));
  if (need.ranks_on_node == 1) return text;
  return text + fmt::format("; {} ranks of a node take up to {}", need.ranks_on_node,
                            bytes_text(need.node_bytes()));
}

}  // namespace shardlens::profiler
