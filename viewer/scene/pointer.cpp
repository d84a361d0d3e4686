// Handles presses, drags and the wheel, and says what is under the pointer.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/units.h"
#include "viewer/scene/control_text.h"
#include "viewer/scene/panels/tree_panel.h"
#include "viewer/scene/parts.h"
#include "viewer/scene/pick.h"
#include "viewer/scene/presenter.h"
#include "viewer/state/lanes.h"
#include "viewer/state/zoom.h"

namespace shardlens::viewer {

namespace {

constexpr double kNotch = 0.8;    // of the view, per notch of the wheel
constexpr float kDragPixels = 4;  // a press that moves this far is a drag

bool is_in_tree(Area::Kind kind) {
  return kind == Area::Kind::tree || kind == Area::Kind::frame || kind == Area::Kind::place_row ||
         kind == Area::Kind::tree_choice || kind == Area::Kind::tree_sort;
}

bool is_lever(Area::Kind kind) {
  return kind == Area::Kind::lever || kind == Area::Kind::lever_mark ||
         kind == Area::Kind::lever_act;
}

/// Puts the cursor on a run's plot.
void put_cursor(ViewState& state, size_t run, double x) {
  state.focus = run;
  state.cursor = x;
  state.at = TableMoment::cursor;
  state.selection.reset();
}

/// True for a part beside a lane's plot.
bool is_of_lanes(Area::Kind kind) {
  return kind == Area::Kind::card || kind == Area::Kind::folded_lane ||
         kind == Area::Kind::lane_fold || kind == Area::Kind::lane_close ||
         kind == Area::Kind::lane_bar || kind == Area::Kind::overview ||
         kind == Area::Kind::overview_row || kind == Area::Kind::overview_sort;
}

}  // namespace

const Area* Presenter::area_under(float x, float y) {
  refresh();
  const bool has_same_runs = pictured_ && pictured_->files == state_.files &&
                             pictured_->lanes.closed == state_.lanes.closed &&
                             pictured_runs_ == opened_.runs.size();
  return has_same_runs ? area_at(picture_, x, y) : nullptr;
}

std::optional<double> Presenter::x_at(const Area& area, float x) const {
  if (area.box.w <= 0) return std::nullopt;
  const bool is_map = area.kind == Area::Kind::minimap;
  if (!is_map && area.kind != Area::Kind::lane) return std::nullopt;
  const Range range = is_map ? facts_.extent : view_of(state_, facts_.extent);
  return range.begin + range.length() * static_cast<double>((x - area.box.x) / area.box.w);
}

/// Returns the x of an allocation or free in the focused run's list.
double Presenter::x_of_event(const Area& event) const {
  const Run& run = opened_.runs[event.run];
  const size_t rank = shown_rank(run, state_);
  return x_of_change(warps_[event.run][rank], run.ranks[rank].lane,
                     static_cast<int64_t>(event.index));
}

/// Returns the change in the first line of the list of events: a press leaves the list as it is.
std::optional<int64_t> Presenter::first_event() const {
  const auto first = std::ranges::find(picture_.areas, Area::Kind::event_row,
                                       [](const Area& a) { return a.kind; });
  if (first == picture_.areas.end()) return std::nullopt;
  return static_cast<int64_t>(first->index);
}

void Presenter::press(float x, float y) {
  const Area* const area = area_under(x, y);
  if (area == nullptr) return;
  pressed_ = *area;
  pressed_at_ = x;
  frames_view_ = area->kind == Area::Kind::minimap && !state_.view;
  ViewState next = state_;
  switch (area->kind) {
    case Area::Kind::lane:
      pressed_x_ = x_at(*area, x).value_or(0);
      put_cursor(next, area->run, pressed_x_);
      break;
    case Area::Kind::card:
      next.focus = area->run;
      break;
    case Area::Kind::legend:
      next.hidden_categories ^= 1U << area->index;
      break;
    case Area::Kind::control:
      if (next.what_if) choose(*next.what_if, static_cast<Control>(area->run), area->index);
      break;
    case Area::Kind::lever:
    case Area::Kind::lever_mark:
    case Area::Kind::lever_act:
      return press_lever(*area);
    case Area::Kind::call:
      if (next.pick) next.pick->call = area->index;
      break;
    case Area::Kind::tree_choice:
      choose_in_tree(next, static_cast<TreeChoice>(area->run), area->index);
      break;
    case Area::Kind::tree_sort:
      next.tree.sort = static_cast<PlaceSort>(area->index), next.tree.first = 0;
      break;
    case Area::Kind::folded_lane:
    case Area::Kind::lane_fold:
    case Area::Kind::lane_close:
    case Area::Kind::lane_bar:
      count_alive();
      press_lane(*area, y, next);
      break;
    case Area::Kind::overview:
    case Area::Kind::overview_row:
    case Area::Kind::overview_sort:
      return press_overview(*area);
    case Area::Kind::event_row:
    case Area::Kind::ribbon:
    case Area::Kind::gpu_work:
    case Area::Kind::failure:
      go_to_moment(*area, x, y, next);
      break;
    case Area::Kind::tab:
      next.front = static_cast<FrontPanel>(area->index);
      break;
    case Area::Kind::category:
    case Area::Kind::alive_row:
    case Area::Kind::matched_row:
    case Area::Kind::frame:
    case Area::Kind::place_row:
    case Area::Kind::minimap:
    case Area::Kind::table:
    case Area::Kind::tree:
      break;
  }
  select(*area, x, y, next);
  change(next);
  if (area->kind != Area::Kind::minimap) return;
  pressed_x_ = x_at(*area, x).value_or(0);
  drag(x);
}

/// Goes to the moment of an event, of an action or of a request that failed.
void Presenter::go_to_moment(const Area& area, float x, float y, ViewState& next) const {
  if (area.kind == Area::Kind::ribbon) return select_span(area, x, y, next);
  if (area.kind == Area::Kind::gpu_work) {
    const auto work = work_under(area, x, y);
    if (work) select_interval(area, work->begin_ns, work->end_ns, next);
    return;
  }
  if (area.kind == Area::Kind::failure) return select_failure(area, next);
  next.cursor = x_of_event(area);
  next.at = TableMoment::cursor;
  next.events_first = first_event();
}

/// Opens the lane of a line, or sorts by a column.
void Presenter::press_overview(const Area& area) {
  if (area.kind == Area::Kind::overview) return;
  ViewState next = state_;
  if (area.kind == Area::Kind::overview_sort) {
    next.overview.sort = static_cast<OverviewSort>(area.index);
    next.overview.first = 0;
    return change(next);
  }
  const bool is_usual = area.index == opened_.runs[area.run].peak_rank();
  open_from_overview(next, facts_, area.run, is_usual ? std::nullopt : std::optional(area.index));
  change(next);
  count_alive();  // the lanes have places only now
  show_focus(state_, facts_);
}

/// Returns the time of a rank that the ribbon shows at a place; nothing if it shows none there.
std::optional<int64_t> Presenter::time_under(const Area& area, float x) const {
  const Warp& warp = warps_[area.run][area.index];
  const RankLane& rank = opened_.runs[area.run].ranks[area.index];
  const Range view = view_of(state_, facts_.extent);
  const double part = static_cast<double>((x - area.box.x) / area.box.w);
  const auto position = warp.position_at(view.begin + part * view.length());
  if (!position) return std::nullopt;
  const auto whole = static_cast<int64_t>(*position);
  return warp.is_by_change() ? rank.lane.time_of(whole) : whole;
}

/// Returns the action that the ribbon shows at a point; null if it shows none there.
const Span* Presenter::span_under(const Area& area, float x, float y) const {
  const std::optional<int64_t> time_ns = time_under(area, x);
  if (!time_ns) return nullptr;
  const RankLane& rank = opened_.runs[area.run].ranks[area.index];
  const bool is_lower = rank.communicates() && y > area.box.y + area.box.h / 2;
  return ribbon_span(rank.lane, rank.names, *time_ns, is_lower);
}

namespace {

/// Returns the line of the module that allocated last before a moment of an action; empty if none
/// is known.
std::string module_line(const Lane& lane, const Span& span, int64_t time_ns) {
  const int64_t change = lane.last_allocation(std::min(time_ns, span.end_ns));
  if (change < 0 || lane.time_of(change) < span.begin_ns) return "";
  const std::string_view module = lane.module_of(change);
  return module.empty() ? "" : fmt::format("the last allocation here is of {}\n", module);
}

}  // namespace

std::string Presenter::span_text(const Area& area, float x, const Span& span) const {
  const RankLane& rank = opened_.runs[area.run].ranks[area.index];
  const Lane& lane = rank.lane;
  const Stretch& stretch = lane.arrays().stretches[static_cast<size_t>(span.stretch)];
  const ActionName name = rank.names.name_of(stretch.phase, span.action);
  const int64_t first = lane.change_at(static_cast<double>(span.begin_ns));
  const int64_t end = lane.change_at(static_cast<double>(span.end_ns + 1));
  const std::string asks = name.part == PassPart::communication
                               ? ": until the program has asked for it; transfers take longer"
                               : "";
  constexpr int kMicroseconds = 6;
  return fmt::format(
      "{}{}\n{}{}, {:.3f} ms\nbegins {}\nat most {}, {} at its end\nclick to select it", name.text,
      asks, module_line(lane, span, time_under(area, x).value_or(span.begin_ns)),
      stretch.number >= 0 ? fmt::format("step {}", stretch.number)
                          : std::string(to_string(stretch.phase)),
      static_cast<double>(span.end_ns - span.begin_ns) / 1e6,
      clock_text_at(lane, span.begin_ns, kMicroseconds),
      bytes_text(lane.extent_of_changes(first, end).max_bytes),
      bytes_text(sum_of(lane.pyramid().bytes_after(end - 1))));
}

/// Selects the action that the ribbon shows at a point, as a part of the axis.
void Presenter::select_span(const Area& area, float x, float y, ViewState& next) const {
  const Span* const span = span_under(area, x, y);
  if (span != nullptr) select_interval(area, span->begin_ns, span->end_ns, next);
}

/// Returns what a row of the GPU's streams shows at a point.
std::optional<JoinedTrace::Work> Presenter::work_under(const Area& area, float x, float y) const {
  const RankLane& rank = opened_.runs[area.run].ranks[area.index];
  const std::optional<int64_t> begin_ns = time_under(area, x);
  const std::optional<int64_t> end_ns = time_under(area, x + 1);
  if (!rank.work || !begin_ns || !end_ns) return std::nullopt;
  const auto row =
      static_cast<size_t>((y - area.box.y) / area.box.h * static_cast<float>(rank.work->rows()));
  return rank.work->work_between(std::min(row, rank.work->rows() - 1), *begin_ns, *end_ns);
}

std::string Presenter::work_text(const Area& area, float x, float y) const {
  const auto work = work_under(area, x, y);
  if (!work) return "the stream is idle here";
  const Lane& lane = opened_.runs[area.run].ranks[area.index].lane;
  constexpr size_t kMostLetters = 160;  // names of kernels list the types of templates
  constexpr int kMicroseconds = 6;
  const int64_t change = lane.change_at(static_cast<double>(work->begin_ns + 1)) - 1;
  return fmt::format("{}\n{}, {:.3f} ms\nbegins {}\n{} allocated then\nclick to select it",
                     work->name.substr(0, kMostLetters), to_string(work->kind),
                     static_cast<double>(work->end_ns - work->begin_ns) / 1e6,
                     clock_text_at(lane, work->begin_ns, kMicroseconds),
                     bytes_text(sum_of(lane.pyramid().bytes_after(change))));
}

/// Selects a part of the axis that begins and ends at these times of a rank.
void Presenter::select_interval(const Area& area, int64_t begin_ns, int64_t end_ns,
                                ViewState& next) const {
  const Warp& warp = warps_[area.run][area.index];
  const Lane& lane = opened_.runs[area.run].ranks[area.index].lane;
  const auto x_of = [&](int64_t time_ns) {
    const auto time = static_cast<double>(time_ns);
    return warp.x_of(warp.is_by_change() ? static_cast<double>(lane.change_at(time)) : time);
  };
  next.focus = area.run;
  next.cursor = x_of(begin_ns);
  next.at = TableMoment::cursor;
  next.selection = Range{x_of(begin_ns), x_of(end_ns)};
}

/// Goes to a request that failed, and lists what was allocated and freed around it.
void Presenter::select_failure(const Area& area, ViewState& next) const {
  const Run& run = opened_.runs[area.run];
  const size_t rank = shown_rank(run, state_);
  const Lane& lane = run.ranks[rank].lane;
  if (area.index >= lane.arrays().failures.size()) return;
  next.focus = area.run;
  next.panels.why = next.panels.alive = true;
  show_moment(next, x_of_failure(warps_[area.run][rank], lane, lane.arrays().failures[area.index]));
}

void Presenter::press_lane(const Area& area, float y, ViewState& next) const {
  switch (area.kind) {
    case Area::Kind::folded_lane:
      next.focus = area.run;
      toggle_fold(next, facts_, area.run);
      return show_focus(next, facts_);
    case Area::Kind::lane_fold:
      return toggle_fold(next, facts_, area.run);
    case Area::Kind::lane_close:
      return close_run(next, facts_, area.run);
    default: {
      // The pressed place becomes the middle of the shown lines.
      const double part = static_cast<double>((y - area.box.y) / area.box.h);
      const auto line = static_cast<int64_t>(part * static_cast<double>(area.index));
      const auto half = static_cast<int64_t>(facts_.lane_lines / 2);
      return scroll_lanes(next, facts_, line - half - static_cast<int64_t>(next.lanes.first));
    }
  }
}

/// Selects what was pressed, and makes a frame of the flame graph fill the width; pressing the
/// frame that already fills it goes back to the one above.
void Presenter::select(const Area& area, float x, float y, ViewState& next) {
  std::swap(state_, next);  // the pressed part is found in the new state
  const std::optional<Pick> pick = pick_at(input(), cache_, area, x, y);
  if (pick || area.kind == Area::Kind::lane) state_.pick = pick;
  if (pick && area.kind == Area::Kind::frame) {
    const bool is_root = pick->path.empty() || pick->path == state_.tree.zoom;
    zoom_tree(state_, is_root ? tree_above(input(), cache_) : pick->path);
    if (pick->path.empty()) state_.pick.reset();
  }
  std::swap(state_, next);
}

void Presenter::drag(float x) {
  if (!pressed_) return;
  if (pressed_->kind == Area::Kind::control) return drag_control(x);
  const auto at = x_at(*pressed_, x);
  if (!at) return;
  const bool is_drag = std::abs(x - pressed_at_) >= kDragPixels;
  if (frames_view_) {
    if (!is_drag) return;
    if (!state_.view) history_.remember(state_);
    state_.view = Range{std::max(facts_.extent.begin, std::min(*at, pressed_x_)),
                        std::min(facts_.extent.end, std::max(*at, pressed_x_))};
  } else if (pressed_->kind == Area::Kind::minimap) {
    const Range view = view_of(state_, facts_.extent);
    pan_by(state_, facts_, *at - (view.begin + view.end) / 2);
  } else if (is_drag) {
    state_.selection = Range{std::min(*at, pressed_x_), std::max(*at, pressed_x_)};
  }
}

/// Drags a slider, which has an area for each of its choices, side by side.
void Presenter::drag_control(float x) {
  const Area* const area = area_at(picture_, x, pressed_->box.y + pressed_->box.h / 2);
  const bool is_same = area != nullptr && area->kind == Area::Kind::control &&
                       area->run == pressed_->run && state_.what_if;
  if (is_same) choose(*state_.what_if, static_cast<Control>(area->run), area->index);
}

void Presenter::release() { pressed_.reset(); }

void Presenter::pan(float x, float y, float pixels, float pixels_up) {
  const Area* const area = area_under(x, y);
  begin_motion();
  pan_by(state_, facts_, -static_cast<double>(pixels) * facts_.column_x);
  if (area == nullptr || area->kind != Area::Kind::lane) return;
  pan_heights(state_, -static_cast<double>(pixels_up / area->box.h));
}

void Presenter::wheel_heights(float x, float y, float notches) {
  const Area* const area = area_under(x, y);
  if (area == nullptr || area->kind != Area::Kind::lane) return;
  const double part = static_cast<double>((area->box.bottom() - y) / area->box.h);
  begin_motion();
  zoom_heights(state_, part, std::pow(kNotch, notches));
}

/// Marks the next call of the selected block's stack, so that the panel shows those around it.
void Presenter::turn_stack(int64_t calls) {
  const BlockFacts* const facts = facts_of_pick(input(), cache_);
  if (facts == nullptr || facts->stack.empty()) return;
  const auto last = static_cast<int64_t>(facts->stack.size()) - 1;
  const auto now = static_cast<int64_t>(state_.pick->call.value_or(main_call(*facts)));
  state_.pick->call = static_cast<size_t>(std::clamp<int64_t>(now + calls, 0, last));
}

void Presenter::wheel(float x, float y, float notches) {
  const Area* area = area_under(x, y);
  if (area == nullptr) return;
  if (area->kind == Area::Kind::failure) {
    const auto is_plot = [&](const Area& one) {
      return one.kind == Area::Kind::lane && one.box.contains(x, y);
    };
    const auto plot = std::ranges::find_if(picture_.areas, is_plot);
    if (plot != picture_.areas.end()) area = &*plot;
  }
  if (area->kind == Area::Kind::alive_row) {
    count_alive();
    return scroll_alive(state_, facts_, notches > 0 ? -1 : 1);
  }
  if (area->kind == Area::Kind::event_row) {
    perform(*find_command(notches > 0 ? "event.previous" : "event.next"));
    return;
  }
  if (area->kind == Area::Kind::matched_row) {
    count_alive();
    return scroll_places(state_, facts_, notches > 0 ? -1 : 1);
  }
  if (is_lever(area->kind)) {
    perform(*find_command(notches > 0 ? "whatif.lever.previous" : "whatif.lever.next"));
    return;
  }
  if (area->kind == Area::Kind::call) return turn_stack(notches > 0 ? -1 : 1);
  if (area->kind == Area::Kind::table) {
    count_alive();
    return scroll_table(state_, facts_, notches > 0 ? -1 : 1);
  }
  if (is_of_lanes(area->kind)) {
    count_alive();
    return scroll_lanes(state_, facts_, notches > 0 ? -1 : 1);
  }
  if (is_in_tree(area->kind)) {
    count_tree();
    return scroll_tree(state_, facts_, notches > 0 ? -1 : 1);
  }
  const auto at = x_at(*area, x);
  if (!at) return;
  begin_motion();
  zoom_at(state_, facts_, *at, std::pow(kNotch, notches));
}

/// Plans what a control would make of the run, and says the result before it is turned. A program
/// is not planned.
std::string Presenter::outcome_of(const Area& area) {
  if (!state_.what_if || what_if_kind_of(*state_.what_if) != WhatIfKind::plan) return "";
  WhatIfEdit turned = *state_.what_if;
  choose(turned, static_cast<Control>(area.run), area.index);
  const PlanRequest request = request_of(turned);
  const std::string key =
      fmt::format("{}\n{}\n{}\n{}", generation_, request.name, request.config, request.gpu);
  return outcome_.get(key, [&] {
    const PlanAnswer answer = answer_of(request, space_of(state_.memory));
    if (!answer.run) return "\n" + *answer.refusal;
    const Outlook& turned_to = *answer.run->outlook;
    const auto& shown = plan_lanes_.news().run;
    const double now = shown ? opened_.runs[*shown].outlook->step_seconds : 0;
    const std::string time = now > 0 && turned_to.step_seconds > 0
                                 ? fmt::format(", {:+.0f} % predicted step time",
                                               100 * (turned_to.step_seconds / now - 1))
                                 : "";
    return fmt::format("\n{}: peak {}{}\n{}", answer.run->name,
                       bytes_text(answer.run->at_peak().lane.peak().max_bytes), time,
                       turned_to.verdict);
  });
}

std::string Presenter::hover_text(float x, float y) {
  const Area* const area = area_under(x, y);
  if (area == nullptr) return "";
  if (area->kind == Area::Kind::frame || area->kind == Area::Kind::place_row) {
    return tree_hover_text(input(), cache_, static_cast<uint32_t>(area->index));
  }
  if (area->kind == Area::Kind::alive_row || area->kind == Area::Kind::event_row) {
    return hover_text_of_pick(input(), cache_, *area, x, y);
  }
  if (area->kind == Area::Kind::matched_row) {
    return hover_text_of_place(input(), cache_, area->index);
  }
  if (area->kind == Area::Kind::control) return control_text(input(), *area) + outcome_of(*area);
  if (area->kind == Area::Kind::ribbon) {
    const Span* const span = span_under(*area, x, y);
    return span == nullptr ? "nothing ran here" : span_text(*area, x, *span);
  }
  if (area->kind == Area::Kind::gpu_work) return work_text(*area, x, y);
  if (area->kind != Area::Kind::lane) return control_text(input(), *area);
  const auto begin = x_at(*area, x);
  const RankLane& rank = opened_.runs[area->run].ranks[area->index];
  const Warp& warp = warps_[area->run][area->index];
  const auto column = column_of(warp, rank.lane, {*begin, *begin + facts_.column_x});
  if (!column) return "";
  std::string text = fmt::format("{}, rank {}\n{} ({} bytes)\n{}", opened_.runs[area->run].name,
                                 rank.lane.rank(), bytes_text(column->max_bytes), column->max_bytes,
                                 moment_text(rank, column->max_change));
  const bool is_stack = state_.detail == Detail::bands && state_.ranks == Ranks::one &&
                        state_.layout != LaneLayout::difference;
  if (is_stack) {
    std::vector<ShownRun> shown = shown_of(input());
    find_drawn(input(), cache_, shown);
    const LaneStyle style = read_style(state_, shown, shown[area->run], area->box);
    if (const auto category = category_at(*column, style, area->box.bottom() - y)) {
      const int64_t bytes = column->at_max[static_cast<size_t>(*category)];
      text += fmt::format("\n{}: {}", words_of(*category, have_shards(shown)), bytes_text(bytes));
    }
  }
  if (state_.detail != Detail::bands) {
    const std::string block = hover_text_of_pick(input(), cache_, *area, x, y);
    if (!block.empty()) text += "\n" + block;
  }
  return text;
}

}  // namespace shardlens::viewer
