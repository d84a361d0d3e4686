#include "viewer/scene/presenter.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "base/units.h"
#include "viewer/model/joined_warp.h"
#include "viewer/scene/flatten.h"
#include "viewer/scene/panels/tree_panel.h"
#include "viewer/scene/parts.h"
#include "viewer/scene/pick.h"
#include "viewer/state/notes.h"

namespace shardlens::viewer {

Presenter::Presenter(ViewState state, std::string cache_folder, ReadProgress meanwhile)
    : state_(std::move(state)),
      cache_folder_(std::move(cache_folder)),
      meanwhile_(std::move(meanwhile)) {
  reload();
}

void Presenter::clamp_state() {
  const size_t last = opened_.runs.empty() ? 0 : opened_.runs.size() - 1;
  state_.baseline = std::min(state_.baseline, last);
  state_.focus = std::min(state_.focus, last);
  if (!state_.pick || opened_.runs.empty()) return;
  const bool is_here = state_.pick->run == state_.focus &&
                       state_.pick->rank == shown_rank(opened_.runs[state_.focus], state_);
  if (!is_here) state_.pick->leave_place();
}

void Presenter::reload() {
  const std::optional<profiler::Space> space = space_of(state_.memory);
  opened_ = open_runs(state_.files,
                      {.cache_folder = cache_folder_,
                       .space = space,
                       .closed = state_.lanes.closed,
                       .device = state_.device,
                       .clock = state_.clock},
                      meanwhile_);
  opened_memory_ = state_.memory;
  opened_clock_ = state_.clock;
  opened_without_ = state_.lanes.closed;
  plan_lanes_.reset(opened_.runs, space);
  lever_lanes_.reset(cache_folder_, space);
  messages_ = opened_.messages;
  ++generation_;
  update_plans(patience_);
  clamp_state();
  align_by_what_there_is();
}

void Presenter::forget_messages() {
  opened_.messages.clear();
  messages_.clear();
  ++generation_;
}

bool Presenter::update_plans(std::chrono::milliseconds most) {
  if (!plan_lanes_.update(state_, opened_.runs, most)) return false;
  ++generation_;
  clamp_state();
  messages_ = opened_.messages;
  messages_.insert(messages_.end(), plan_lanes_.refusals().begin(), plan_lanes_.refusals().end());
  return true;
}

bool Presenter::follow_plan() {
  return is_planning() && update_plans(std::chrono::milliseconds(0));
}

/// Replaces alignment by step or phase with alignment by event if no run has steps: then runs can
/// only be aligned by their changes.
void Presenter::align_by_what_there_is() {
  const bool wants_steps =
      state_.alignment == Alignment::step || state_.alignment == Alignment::phase;
  const auto has_steps = [](const Run& run) {
    const auto& stretches = run.at_peak().lane.arrays().stretches;
    return std::ranges::any_of(stretches, [](const Stretch& one) { return one.number >= 0; });
  };
  if (!wants_steps || opened_.runs.empty() || std::ranges::any_of(opened_.runs, has_steps)) return;
  state_.alignment = Alignment::event;
}

namespace {

/// True if some runs are so short beside others that an axis of steps would show them as a line.
bool have_other_lengths(const std::vector<Run>& runs) {
  constexpr int64_t kMostTimes = 10;
  int64_t least = INT64_MAX;
  int64_t most = 0;
  for (const Run& run : runs) {
    const auto is_step = [](const Stretch& one) { return one.number >= 0; };
    const auto steps = std::ranges::count_if(run.at_peak().lane.arrays().stretches, is_step);
    least = std::min<int64_t>(least, std::max<int64_t>(1, steps));
    most = std::max<int64_t>(most, steps);
  }
  return !runs.empty() && most / least > kMostTimes;
}

}  // namespace

void Presenter::choose_view() {
  if (opened_.runs.size() > 1 && state_.focus == state_.baseline) {
    state_.focus = state_.baseline == 0 ? 1 : 0;
  }
  if (state_.alignment == Alignment::step && have_other_lengths(opened_.runs)) {
    state_.alignment = Alignment::normalised;
  }
  const auto has_categories = [](const Run& run) {
    const CategoryBytes& bytes = run.at_peak().lane.peak().at_max;
    return std::ranges::count_if(bytes, [](int64_t one) { return one > 0; }) > 1;
  };
  if (!opened_.runs.empty() && std::ranges::none_of(opened_.runs, has_categories)) {
    state_.detail = Detail::blocks;
    state_.grouping = Grouping::label;
  }
}

void Presenter::open(const std::vector<std::string>& paths) {
  ViewState next = state_;
  for (const std::string& path : paths) {
    std::erase(next.lanes.closed, path);
    if (std::ranges::find(next.files, path) == next.files.end()) next.files.push_back(path);
  }
  change(next);
  reload();
  choose_view();
}

void Presenter::restore(const ViewState& state) {
  change(state);
  reload();
}

bool Presenter::follow_recordings() {
  bool has_grown = false;
  for (Run& run : opened_.runs) has_grown |= follow(run);
  if (has_grown) ++generation_;
  return has_grown;
}

void Presenter::refresh() {
  if (opened_memory_ != state_.memory || opened_clock_ != state_.clock ||
      opened_without_ != state_.lanes.closed) {
    reload();
  }
  update_plans(patience_);
  update_levers(lever_patience_);
  name_runs();
  const WarpInputs wanted{generation_, state_.alignment, state_.baseline};
  if (warps_made_ != wanted) {
    warps_ = warps_of(opened_.runs, state_.alignment, state_.baseline);
    warps_made_ = wanted;
  }
  refresh_plan_warps();
  refresh_hits();
  std::string key = fmt::format(
      "{} {} {} {} {} {}", generation_, static_cast<int>(state_.alignment), state_.baseline,
      state_.focus, static_cast<int>(state_.lanes.sort), fmt::join(state_.earlier_baselines, " "));
  for (const Run& run : opened_.runs) key += fmt::format(" {}", shown_rank(run, state_));
  key += state_.search;
  if (key != facts_key_) {
    facts_key_ = key;
    refresh_facts();
  }
  facts_.levers = lever_names();
  const int columns = canvas_.width > 0 ? plot_columns(input()) : 1000;
  facts_.column_x = view_of(state_, facts_.extent).length() / columns;
}

/// Gives the runs the names that the user chose.
void Presenter::name_runs() {
  const auto& names = state_.lanes.names;
  for (Run& run : opened_.runs) {
    const auto at = std::ranges::find(names, run.key(), &LaneName::run);
    if (run.rename(at == names.end() ? "" : at->name)) ++generation_;
  }
}

void Presenter::refresh_plan_warps() {
  std::string key =
      fmt::format("{} {} {}", generation_, static_cast<int>(state_.alignment), state_.baseline);
  for (const Run& run : opened_.runs) key += fmt::format(" {}", shown_rank(run, state_));
  if (key == plan_warps_key_) return;
  plan_warps_key_ = key;
  plan_warps_.clear();
  for (size_t i = 0; i < opened_.runs.size(); ++i) {
    const Run& run = opened_.runs[i];
    const size_t rank = shown_rank(run, state_);
    plan_warps_.push_back(run.plan
                              ? joined_warp(warps_[i][rank], run.ranks[rank].lane, run.plan->lane)
                              : JoinedWarp());
  }
}

void Presenter::refresh_facts() {
  facts_ = facts_of(opened_.runs, warps_, state_);
  if (state_.focus >= hits_.size()) return;
  const Run& run = opened_.runs[state_.focus];
  const size_t rank = shown_rank(run, state_);
  for (const Hit& hit : hits_[state_.focus].hits) {
    const Lane& lane = run.ranks[rank].lane;
    facts_.hits_x.push_back(
        x_of_change(warps_[state_.focus][rank], lane, lane.arrays().blocks[hit.block].born));
  }
}

void Presenter::refresh_hits() {
  std::string key = state_.search;
  for (const Run& run : opened_.runs) key += fmt::format(" {}", shown_rank(run, state_));
  const std::pair wanted{generation_, key};
  if (hits_made_ == wanted) return;
  hits_made_ = wanted;
  hits_.clear();
  const Query query = query_of_session(state_.search);
  if (query.is_empty()) return;
  for (const Run& run : opened_.runs) {
    const RankLane& rank = run.ranks[shown_rank(run, state_)];
    SearchHits& found = hits_.emplace_back();
    found.hits = search(rank.lane, rank.names, query);
  }
}

const Facts& Presenter::facts() {
  count_alive();
  count_tree();
  return facts_;
}

void Presenter::change(const ViewState& next) {
  is_moving_ = false;
  if (next == state_) return;
  history_.remember(state_);
  state_ = next;
  clamp_state();
}

/// Counts the rows of live allocations, of their places and of the table, and the lanes that fit.
/// It runs only when the counts are needed; frames of a zoom do not need them.
void Presenter::count_alive() {
  refresh();
  facts_.alive_rows = 0;
  facts_.next_change_x.reset();
  facts_.previous_change_x.reset();
  facts_.place_rows = 0;
  facts_.table_rows = 0;
  if (state_.focus >= opened_.runs.size()) return;
  std::vector<ShownRun> shown = shown_of(input());
  find_drawn(input(), cache_, shown);
  facts_.table_rows = table_rows(shown);
  const Geometry geometry = place_parts(input(), facts_.table_rows);
  facts_.lane_columns = geometry.lane_columns;
  facts_.lane_lines = geometry.lane_lines;
  facts_.all_lane_lines = geometry.all_lines;
  facts_.tabs.clear();
  for (const Area& area : picture_.areas) {
    if (area.kind == Area::Kind::tab) facts_.tabs.push_back(static_cast<FrontPanel>(area.index));
  }
  facts_.overview_rows = overview_lines(input());
  facts_.overview_lines = static_cast<size_t>(
      std::ranges::count(picture_.areas, Area::Kind::overview_row, &Area::kind));
  const ShownRun& one = shown[state_.focus];
  facts_.rank_lanes =
      static_cast<size_t>(std::ranges::count_if(picture_.areas, [&](const Area& area) {
        return area.kind == Area::Kind::lane && area.run == one.index;
      }));
  facts_.alive_rows = listed_rows(input(), one).size();
  facts_.place_rows = changed_places(shown_places(input(), cache_, shown));
  const Lane& lane = one.lane->lane;
  const auto x_of = [&](std::optional<int64_t> change) {
    return change ? std::optional(x_of_change(*one.warp, lane, *change)) : std::nullopt;
  };
  const double x = state_.cursor.value_or(x_of_change(*one.warp, lane, one.change));
  facts_.next_change_x = x_of(change_behind(*one.warp, lane, x));
  facts_.previous_change_x = x_of(change_before(*one.warp, lane, x));
}

/// Finds what can be selected, and counts the rows of the tree.
void Presenter::count_tree() {
  facts_.pickable.clear();
  facts_.tree_rows = 0;
  facts_.tree_above.clear();
  if (opened_.runs.empty()) return;
  facts_.pickable = pickable_blocks(input(), cache_);
  facts_.tree_rows = tree_rows(input(), cache_);
  facts_.tree_above = tree_above(input(), cache_);
}

std::string Presenter::pick_text() {
  refresh();
  return text_of_pick(input(), cache_);
}

std::optional<profiler::TreePlace> Presenter::pick_call() {
  refresh();
  return call_of_pick(input());
}

Request Presenter::perform(const Command& command) {
  if (command.request == Request::undo || command.request == Request::redo) {
    is_moving_ = false;
    const std::vector<std::string> files = state_.files;
    if (command.request == Request::undo) history_.undo(state_);
    if (command.request == Request::redo) history_.redo(state_);
    if (state_.files != files) reload();
    clamp_state();
    return Request::none;
  }
  if (command.request == Request::run_levers) return run_levers();
  if (command.request == Request::stop_levers) return lever_lanes_.stop_all(), Request::none;
  if (command.apply == nullptr) return command.request;
  count_alive();
  count_tree();
  ViewState next = state_;
  command.apply(next, facts_);
  const bool realigns = next.alignment != state_.alignment;
  const ViewState before = state_;
  const Warps warps = realigns ? warps_ : Warps();
  change(next);
  if (realigns) keep_place(before, warps);
  return Request::none;
}

/// Makes view and cursor show the moments of the focused run in the new alignment that they showed
/// in the one before.
void Presenter::keep_place(const ViewState& before, const Warps& warps) {
  refresh();
  state_.selection.reset();
  if (state_.focus >= opened_.runs.size()) return;
  const Run& run = opened_.runs[state_.focus];
  const size_t rank = shown_rank(run, state_);
  const Lane& lane = run.ranks[rank].lane;
  const Warp& old_warp = warps[state_.focus][rank];
  const Warp& new_warp = warps_[state_.focus][rank];
  const auto moved = [&](double x) {
    const Range all = old_warp.extent();
    const double position = old_warp.position_at(std::clamp(x, all.begin, all.end)).value_or(0);
    if (old_warp.is_by_change() == new_warp.is_by_change()) return new_warp.x_of(position);
    if (!new_warp.is_by_change()) {
      return new_warp.x_of(
          static_cast<double>(lane.time_of(static_cast<int64_t>(std::max(0.0, position)))));
    }
    return new_warp.x_of(static_cast<double>(lane.change_at(std::floor(position) + 0.5) - 1));
  };
  if (before.cursor) state_.cursor = moved(*before.cursor);
  if (!before.view) return;
  const Range view{moved(before.view->begin), moved(before.view->end)};
  state_.view = view.length() > 0 ? std::optional(view) : std::nullopt;
}

/// Remembers the state before the first of several turns of the wheel: undo takes back all of them.
void Presenter::begin_motion() {
  if (!std::exchange(is_moving_, true)) history_.remember(state_);
}

void Presenter::set_search(const std::string& text) {
  parse_query(text);
  ViewState next = state_;
  next.search = text;
  change(next);
}

void Presenter::add_note(const std::string& text) {
  if (text.empty()) return;
  refresh();
  const Range view = view_of(state_, facts_.extent);
  ViewState next = state_;
  next.notes.push_back(
      {state_.cursor.value_or((view.begin + view.end) / 2), text, state_.alignment});
  change(next);
}

void Presenter::go_to_note(size_t note) {
  ViewState next = state_;
  show_note(next, note);
  change(next);
}

void Presenter::remove_note(size_t note) {
  ViewState next = state_;
  if (note < next.notes.size()) {
    next.notes.erase(next.notes.begin() + static_cast<std::ptrdiff_t>(note));
  }
  change(next);
}

void Presenter::rename(const std::string& name) {
  refresh();
  if (state_.focus >= facts_.keys.size()) return;
  const std::string& key = facts_.keys[state_.focus];
  ViewState next = state_;
  std::erase_if(next.lanes.names, [&](const LaneName& one) { return one.run == key; });
  if (!name.empty()) next.lanes.names.push_back({key, name});
  change(next);
}

void Presenter::show(const Range& view) {
  ViewState next = state_;
  next.view = view;
  change(next);
}

SceneInput Presenter::input() {
  return {.runs = opened_.runs,
          .warps = warps_,
          .plan_warps = plan_warps_,
          .plan_news = plan_lanes_.news(),
          .levers = lever_lanes_.levers(),
          .state = state_,
          .facts = facts_,
          .hits = hits_,
          .messages = messages_,
          .generation = generation_,
          .width = canvas_.width,
          .height = canvas_.height,
          .top = canvas_.top,
          .scale = canvas_.scale,
          .is_figure = canvas_.is_figure};
}

const Picture& Presenter::picture(const Canvas& canvas, const Fonts& fonts) {
  const bool is_same = pictured_ == state_ && canvas == canvas_ &&
                       pictured_generation_ == generation_ &&
                       pictured_levers_ == lever_lanes_.version();
  if (is_same) return picture_;
  canvas_ = canvas;
  refresh();
  facts_.tree_rows = tree_rows(input(), cache_);
  facts_.details_rows = details_rows(input(), cache_);
  picture_ = make_picture(input(), fonts, cache_);
  ground_.is_bottom_up = true;
  flatten(picture_, ground_);
  ++ground_.version;
  pictured_ = state_;
  pictured_generation_ = generation_;
  pictured_levers_ = lever_lanes_.version();
  pictured_runs_ = opened_.runs.size();
  ++pictures_made_;
  return picture_;
}

std::string Presenter::table_csv() {
  refresh();
  std::vector<ShownRun> shown = shown_of(input());
  find_drawn(input(), cache_, shown);
  std::string csv = "category";
  const auto quoted = [](std::string text) {
    std::string whole = "\"";
    for (const char c : text) whole += c == '"' ? "\"\"" : std::string(1, c);
    return whole + "\"";
  };
  for (const ShownRun& one : shown) csv += "," + quoted(one.run->name + " bytes");
  csv += "\nall";
  for (const ShownRun& one : shown) csv += fmt::format(",{}", one.total);
  for (const Category category : used_categories(shown)) {
    csv += fmt::format("\n{}", profiler::category_name(category, have_shards(shown)));
    for (const ShownRun& one : shown) {
      csv += fmt::format(",{}", one.bytes[static_cast<size_t>(category)]);
    }
  }
  return csv + "\n";
}

}  // namespace shardlens::viewer
