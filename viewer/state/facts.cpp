#include "viewer/state/facts.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "profiler/compare/origin.h"

namespace shardlens::viewer {

Warps warps_of(const std::vector<Run>& runs, Alignment alignment, size_t baseline) {
  Warps warps;
  if (runs.empty()) return warps;
  const RankLane& base = runs[std::min(baseline, runs.size() - 1)].at_peak();
  for (const Run& run : runs) {
    warps.emplace_back();
    for (const RankLane& rank : run.ranks) {
      warps.back().push_back(
          warp_of(alignment, {&rank.lane, &rank.names}, {&base.lane, &base.names}));
    }
  }
  return warps;
}

Range extent_of(const Warps& warps) {
  std::optional<Range> all;
  for (const auto& run : warps) {
    for (const Warp& warp : run) {
      const Range one = warp.extent();
      all = all ? Range{std::min(all->begin, one.begin), std::max(all->end, one.end)} : one;
    }
  }
  return all.value_or(Range{0, 1});
}

std::vector<size_t> lane_order(const std::vector<Run>& runs, const ViewState& state) {
  std::vector<size_t> order(runs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto peak = [&](size_t i) {
    return runs[i].ranks[shown_rank(runs[i], state)].lane.peak().max_bytes;
  };
  if (state.lanes.sort == LaneSort::peak) {
    std::ranges::stable_sort(order, std::greater(), peak);
  } else if (state.lanes.sort == LaneSort::name) {
    std::ranges::stable_sort(order, profiler::is_naturally_less,
                             [&](size_t i) { return runs[i].name; });
  }
  return order;
}

std::optional<profiler::Space> space_of(ShownMemory memory) {
  switch (memory) {
    case ShownMemory::host:
      return profiler::Space::host;
    case ShownMemory::pinned:
      return profiler::Space::pinned;
    case ShownMemory::segments:
      return profiler::Space::segment;
    case ShownMemory::tensors:
      break;
  }
  return std::nullopt;
}

size_t shown_rank(const Run& run, const ViewState& state) {
  return state.rank ? std::min(*state.rank, run.ranks.size() - 1) : run.peak_rank();
}

Facts facts_of(const std::vector<Run>& runs, const Warps& warps, const ViewState& state) {
  Facts facts;
  facts.extent = extent_of(warps);
  if (!runs.empty()) {
    const Run& focus = runs[std::min(state.focus, runs.size() - 1)];
    facts.focus_request = request_of(focus);
    facts.focus_recording = focus.at_peak().path;
    facts.focus_rank = shown_rank(focus, state);
  }
  facts.order = lane_order(runs, state);
  facts.bases = bases_of(runs, state.baseline, state.earlier_baselines);
  for (size_t i = 0; i < runs.size(); ++i) {
    facts.keys.push_back(runs[i].key());
    const size_t rank = shown_rank(runs[i], state);
    const Lane& lane = runs[i].ranks[rank].lane;
    const Warp& warp = warps[i][rank];
    facts.most_ranks = std::max(facts.most_ranks, runs[i].ranks.size());
    facts.peak_x.push_back(x_of_change(warp, lane, lane.peak().max_change));
    auto& peaks = facts.peaks_x.emplace_back();
    auto& failures = facts.failures_x.emplace_back();
    for (const FailedRequest& failure : lane.arrays().failures) {
      failures.push_back(x_of_failure(warp, lane, failure));
    }
    std::ranges::sort(failures);
    auto& steps = facts.steps_x.emplace_back();
    for (const Stretch& stretch : lane.arrays().stretches) {
      peaks.push_back(x_of_change(warp, lane, stretch.peak_change));
      if (stretch.number < 0) continue;
      steps.push_back(warp.x_of(
          static_cast<double>(warp.is_by_change() ? stretch.first_change : stretch.begin_ns)));
    }
    std::ranges::sort(peaks);
  }
  return facts;
}

Range view_of(const ViewState& state, const Range& extent) { return state.view.value_or(extent); }

}  // namespace shardlens::viewer
