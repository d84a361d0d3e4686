#include "viewer/state/lanes.h"

#include <algorithm>

namespace shardlens::viewer {

namespace {

size_t lines_of(size_t lanes, const Facts& facts) {
  const size_t columns = std::max<size_t>(1, facts.lane_columns);
  return (lanes + columns - 1) / columns;
}

/// Returns the index of a run after the run `closed` is gone.
size_t index_after_closing(size_t run, size_t closed) { return run > closed ? run - 1 : run; }

/// Closes a run that the state itself has made. Returns true if there is such a run.
bool close_plan(ViewState& state, const std::string& key) {
  if (state.what_if && request_of(*state.what_if).name == key) {
    state.what_if.reset();
    return true;
  }
  return std::erase_if(state.plans, [&](const PlanRequest& plan) { return plan.name == key; }) > 0;
}

}  // namespace

bool is_folded(const Lanes& lanes, const std::string& key) {
  return std::ranges::find(lanes.folded, key) != lanes.folded.end();
}

std::vector<size_t> unfolded_runs(const ViewState& state, const Facts& facts) {
  std::vector<size_t> shown = facts.order;
  std::erase_if(shown, [&](size_t run) { return is_folded(state.lanes, facts.keys[run]); });
  return shown;
}

void toggle_fold(ViewState& state, const Facts& facts, size_t run) {
  if (run >= facts.keys.size()) return;
  const std::string& key = facts.keys[run];
  if (std::erase(state.lanes.folded, key) == 0) state.lanes.folded.push_back(key);
}

void fold_others(ViewState& state, const Facts& facts) {
  if (state.focus >= facts.keys.size()) return;
  state.lanes.folded = facts.keys;
  std::erase(state.lanes.folded, facts.keys[state.focus]);
  state.lanes.first = 0;
}

void close_run(ViewState& state, const Facts& facts, size_t run) {
  if (run >= facts.keys.size()) return;
  const std::string& key = facts.keys[run];
  std::erase(state.lanes.folded, key);
  if (!close_plan(state, key)) state.lanes.closed.push_back(key);
  if (state.pick && state.pick->run == run) state.pick.reset();
  if (state.pick) state.pick->run = index_after_closing(state.pick->run, run);
  std::erase(state.earlier_baselines, run);
  for (size_t& earlier : state.earlier_baselines) earlier = index_after_closing(earlier, run);
  state.focus = index_after_closing(state.focus, run);
  if (state.baseline == run) {
    state.baseline = 0;
  } else {
    state.baseline = index_after_closing(state.baseline, run);
  }
}

void choose_baseline_of_memory(ViewState& state, const Facts& facts) {
  if (state.focus >= facts.runs() || state.focus == state.baseline) return;
  std::erase(state.earlier_baselines, state.focus);
  state.earlier_baselines.insert(state.earlier_baselines.begin(), state.baseline);
  state.baseline = state.focus;
}

void move_focus(ViewState& state, const Facts& facts, int64_t forward) {
  const auto count = static_cast<int64_t>(facts.order.size());
  if (count == 0) return;
  const auto now = std::ranges::find(facts.order, state.focus) - facts.order.begin();
  state.focus = facts.order[static_cast<size_t>((now + forward + count) % count)];
  show_focus(state, facts);
}

void open_from_overview(ViewState& state, const Facts& facts, size_t run,
                        std::optional<size_t> rank) {
  if (run >= facts.keys.size()) return;
  state.overview.is_open = false;
  state.focus = run;
  state.rank = rank;
  std::erase(state.lanes.folded, facts.keys[run]);
}

namespace {

void scroll_ranks(ViewState& state, const Facts& facts, int64_t ranks) {
  const size_t most = facts.most_ranks - std::min(facts.most_ranks, facts.rank_lanes);
  state.lanes.first_rank = static_cast<size_t>(std::clamp<int64_t>(
      static_cast<int64_t>(state.lanes.first_rank) + ranks, 0, static_cast<int64_t>(most)));
}

}  // namespace

void scroll_lanes(ViewState& state, const Facts& facts, int64_t lines) {
  if (state.overview.is_open) {
    const size_t most = facts.overview_rows - std::min(facts.overview_rows, facts.overview_lines);
    state.overview.first = static_cast<size_t>(std::clamp<int64_t>(
        static_cast<int64_t>(state.overview.first) + lines, 0, static_cast<int64_t>(most)));
    return;
  }
  const size_t all = lines_of(unfolded_runs(state, facts).size(), facts);
  const auto last = static_cast<int64_t>(all - std::min(all, facts.lane_lines));
  if (last == 0 && state.ranks == Ranks::each) return scroll_ranks(state, facts, lines);
  state.lanes.first = static_cast<size_t>(
      std::clamp<int64_t>(static_cast<int64_t>(state.lanes.first) + lines, 0, last));
}

void show_focus(ViewState& state, const Facts& facts) {
  const std::vector<size_t> lanes = unfolded_runs(state, facts);
  const auto at = std::ranges::find(lanes, state.focus);
  if (at == lanes.end()) return;
  const size_t line =
      static_cast<size_t>(at - lanes.begin()) / std::max<size_t>(1, facts.lane_columns);
  const size_t lines = std::max<size_t>(1, facts.lane_lines);
  const size_t least = line + 1 - std::min(line + 1, lines);
  state.lanes.first = std::clamp(state.lanes.first, least, line);
}

}  // namespace shardlens::viewer
