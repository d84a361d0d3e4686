#include "viewer/state/commands.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <sstream>
#include <vector>

#include "viewer/model/search.h"
#include "viewer/state/lanes.h"
#include "viewer/state/notes.h"
#include "viewer/state/zoom.h"

namespace shardlens::viewer {

namespace {

constexpr double kZoomStep = 0.7;
constexpr double kPanPart = 0.2;  // of the view
constexpr double kLeastZoom = 0.5;
constexpr double kMostZoom = 4;

template <typename Enum>
void cycle(Enum& value, int count) {
  value = static_cast<Enum>((static_cast<int>(value) + 1) % count);
}

template <typename Enum>
void cycle_back(Enum& value, int count) {
  value = static_cast<Enum>((static_cast<int>(value) + count - 1) % count);
}

const std::vector<double>* focused_list(const std::vector<std::vector<double>>& lists,
                                        const ViewState& state) {
  return state.focus < lists.size() && !lists[state.focus].empty() ? &lists[state.focus] : nullptr;
}

double origin_x(const ViewState& state, const Facts& facts) {
  return state.cursor.value_or(view_of(state, facts.extent).begin);
}

void go_to_next(ViewState& state, const std::vector<double>& places, double x, double least) {
  const auto at = std::ranges::upper_bound(places, x + least);
  show_moment(state, at == places.end() ? places.front() : *at);
}

void go_to_previous(ViewState& state, const std::vector<double>& places, double x, double least) {
  const auto at = std::ranges::lower_bound(places, x - least);
  show_moment(state, at == places.begin() ? places.back() : *std::prev(at));
}

/// Returns a distance far below a pixel: places in one pixel that differ by more are different.
double tolerance_x(const Facts& facts) { return facts.column_x * 1e-3; }

void show_step(ViewState& state, const Facts& facts, int direction) {
  const auto* steps = focused_list(facts.steps_x, state);
  if (steps == nullptr) return;
  const double x = state.view ? state.view->begin : facts.extent.begin;
  size_t step = 0;
  while (step + 1 < steps->size() && (*steps)[step + 1] <= x + tolerance_x(facts)) ++step;
  const bool is_shown = state.view && std::abs((*steps)[step] - x) <= tolerance_x(facts);
  if (is_shown && direction > 0) step = std::min(step + 1, steps->size() - 1);
  if (is_shown && direction < 0 && step > 0) --step;
  const double end = step + 1 < steps->size() ? (*steps)[step + 1] : (*steps)[step] + 1;
  state.view = Range{(*steps)[step], end};
}

void isolate_next(ViewState& state) {
  constexpr uint32_t kAll = (1U << kCategories) - 1;
  unsigned shown = kCategories;
  for (unsigned i = 0; i < kCategories; ++i) {
    if (state.hidden_categories == (kAll & ~(1U << i))) shown = i;
  }
  const unsigned next_shown = (shown + 1) % (kCategories + 1);
  state.hidden_categories = next_shown == kCategories ? 0 : kAll & ~(1U << next_shown);
}

void next_rank(ViewState& state, const Facts& facts, size_t forward) {
  const size_t now = state.rank.value_or(facts.most_ranks - 1);
  state.rank = (now + forward) % facts.most_ranks;
}

void set_scale(ViewState& state, double factor) {
  state.zoom = std::clamp(state.zoom * factor, kLeastZoom, kMostZoom);
}

/// Selects the next block: among those selected, or among all in the tree.
void pick_next(ViewState& state, const Facts& facts, int64_t forward) {
  const auto count = static_cast<int64_t>(facts.pickable.size());
  if (count == 0) return;
  const bool is_here =
      state.pick && state.pick->run == state.focus && state.pick->rank == facts.focus_rank;
  if (!is_here) state.pick = Pick{.run = state.focus, .rank = facts.focus_rank};
  const auto now = std::ranges::find(facts.pickable, state.pick->block, &PickableBlock::block);
  const int64_t at = now - facts.pickable.begin();
  const int64_t first = forward > 0 ? 0 : count - 1;
  const PickableBlock& next_one =
      facts.pickable[static_cast<size_t>(at == count ? first : (at + forward + count) % count)];
  state.pick->block = next_one.block;
  state.pick->category = next_one.category;
  state.pick->call.reset();
}

/// Selects all blocks of the selected one's name, then of its category, then only that block.
void widen_pick(ViewState& state) {
  if (!state.pick || state.pick->block == kNoBlock) return;
  const PickScope now = state.pick->scope;
  state.pick->scope = now == PickScope::block  ? PickScope::name
                      : now == PickScope::name ? PickScope::category
                                               : PickScope::block;
  state.pick->path.clear();
}

/// Only the axis of time has another length with the other clock.
void turn_clock(ViewState& state) {
  cycle(state.clock, static_cast<int>(kWords<Clock>.size()));
  if (state.alignment != Alignment::time) return;
  state.view.reset();
  state.selection.reset();
  state.cursor.reset();
}

/// Changes what the tree contains or groups by; its places change with it.
template <typename Enum>
void turn_tree(ViewState& state, Enum& value, int count) {
  cycle(value, count);
  state.tree.is_open = true;
  zoom_tree(state, {});
  if (state.pick) state.pick->leave_place();
}

void set_threshold(ViewState& state, int64_t step) {
  const auto most = static_cast<int64_t>(kTreeThresholds.size()) - 1;
  const auto now = static_cast<int64_t>(state.tree.threshold);
  state.tree.threshold = static_cast<size_t>(std::clamp<int64_t>(now + step, 0, most));
}

void next_front(ViewState& state, const Facts& facts) {
  if (facts.tabs.empty()) return;
  const auto now = std::ranges::find(facts.tabs, state.front);
  const bool is_last = now == facts.tabs.end() || now + 1 == facts.tabs.end();
  state.front = is_last ? FrontPanel::lanes : *(now + 1);
}

/// Opens the panel with the focused run, or closes it.
void toggle_what_if(ViewState& state, const Facts& facts) {
  if (state.what_if) {
    state.what_if.reset();
  } else if (facts.runs() > 0) {
    state.what_if = what_if_of(facts.focus_request);
    const bool has_levers = what_if_kind_of(*state.what_if) == WhatIfKind::recording;
    if (has_levers) state.what_if->recording = facts.focus_recording;
  }
}

/// Keeps the panel's plan as a run; the panel stays open as it is.
void keep_what_if(ViewState& state) {
  if (!state.what_if || what_if_kind_of(*state.what_if) != WhatIfKind::plan) return;
  const PlanRequest request = request_of(*state.what_if);
  if (std::ranges::find(state.plans, request) != state.plans.end()) return;
  state.plans.push_back(request);
}

template <Control control, int direction>
void turn_control(ViewState& state, const Facts& /*facts*/) {
  if (state.what_if) turn(*state.what_if, control, direction);
}

template <int direction>
void turn_lever(ViewState& state, const Facts& facts) {
  if (state.what_if) choose_lever(*state.what_if, facts.levers, direction);
}

constexpr int64_t kAlivePage = 10;  // rows
constexpr auto kMemories = static_cast<int>(kWords<ShownMemory>.size());

using S = ViewState&;
using F = const Facts&;

constexpr std::array kCommands = {
    // These commands open, save and export files.
    Command{"file.open", "Ctrl+O", "File", "Open a run, plan or snapshot", nullptr,
            Request::open_file},
    Command{"file.reload", "Ctrl+L", "File", "Reload all runs", nullptr, Request::reload},
    Command{"session.save", "Ctrl+S", "File", "Save this session", nullptr, Request::save_session},
    Command{"session.link", "Ctrl+Shift+S", "File", "Save the session, copy the command to open it",
            nullptr,            Request::copy_link},
    Command{"export.picture", "Ctrl+E", "File", "Export the picture as PNG", nullptr,
            Request::export_picture},
    Command{"export.figure", "Ctrl+Shift+V", "File", "Export the plots as SVG", nullptr,
            Request::export_figure},
    Command{"export.page", "Ctrl+Shift+P", "File", "Export a page for any browser", nullptr,
            Request::export_page},
    Command{"export.table", "Ctrl+Shift+E", "File", "Export the table as CSV", nullptr,
            Request::export_table},
    Command{"quit", "Ctrl+Q", "File", "Quit", nullptr, Request::quit},
    // These choose what the picture shows.
    Command{"layout.rows", "1", "View", "Lanes in rows",
            [](S s, F) { s.layout = LaneLayout::rows; }},
    Command{"layout.columns", "2", "View", "Lanes in columns",
            [](S s, F) { s.layout = LaneLayout::columns; }},
    Command{"layout.overlay", "3", "View", "Outlines over the baseline",
            [](S s, F) { s.layout = LaneLayout::overlay; }},
    Command{"layout.difference", "4", "View", "Differences from the baseline",
            [](S s, F) { s.layout = LaneLayout::difference; }},
    Command{"height.next", "Y", "View", "Y axis: shared, own, capacity or fitted to the view",
            [](S s, F) { cycle(s.height, 4); }},
    Command{"height.fit", "Shift+Y", "View", "Fit the y axis to the view",
            [](S s, F) { s.height = Height::view, s.heights = {0, 1}; }},
    Command{"detail.next", "V", "View", "Show categories, blocks or addresses",
            [](S s, F) { cycle(s.detail, 3); }},
    Command{"detail.previous", "Shift+V", "View", "Show addresses, blocks or categories",
            [](S s, F) { cycle_back(s.detail, 3); }},
    Command{"memory.next", "X", "View", "Memory: tensors, host, pinned or segments",
            [](S s, F) { cycle(s.memory, kMemories), s.pick.reset(); }},
    Command{"memory.previous", "Shift+X", "View", "Memory: segments, pinned, host or tensors",
            [](S s, F) { cycle_back(s.memory, kMemories), s.pick.reset(); }},
    Command{"ranks.next", "K", "View", "Show one rank, each rank, or all folded",
            [](S s, F) { cycle(s.ranks, 3); }},
    Command{"rank.next", "R", "View", "Next rank", [](S s, F f) { next_rank(s, f, 1); }},
    Command{"rank.previous", "Shift+R", "View", "Previous rank",
            [](S s, F f) { next_rank(s, f, f.most_ranks - 1); }},
    Command{"rank.peak", "Ctrl+R", "View", "Show the rank with the highest peak",
            [](S s, F) { s.rank.reset(); }},
    Command{"category.isolate", "I", "View", "Show only one category, then the next",
            [](S s, F) { isolate_next(s); }},
    Command{"category.all", "Shift+I", "View", "Show all categories",
            [](S s, F) { s.hidden_categories = 0; }},
    Command{"theme.next", "T", "View", "Theme: light, dark or high contrast",
            [](S s, F) { cycle(s.theme, 3); }},
    Command{"hatches", "H", "View", "Hatches on the categories",
            [](S s, F) { s.panels.hatches = !s.panels.hatches; }},
    Command{"scale.up", "Ctrl+=", "View", "Larger interface", [](S s, F) { set_scale(s, 1.25); }},
    Command{"scale.down", "Ctrl+-", "View", "Smaller interface", [](S s, F) { set_scale(s, 0.8); }},
    Command{"scale.reset", "Ctrl+0", "View", "Interface at 100 %",
            [](S s, F) { s.zoom = 1; }},
    Command{"clock.predicted", "Shift+A", "View", "Times as predicted for the GPU",
            [](S s, F) { turn_clock(s); }},
    // These choose the alignment, in which the presenter keeps view and cursor, and the baseline.
    Command{"align.next", "A", "Align", "Next alignment",
            [](S s, F) { cycle(s.alignment, kAlignments); }},
    Command{"align.time", "Alt+1", "Align", "Align by time",
            [](S s, F) { s.alignment = Alignment::time; }},
    Command{"align.step", "Alt+2", "Align", "Align by step",
            [](S s, F) { s.alignment = Alignment::step; }},
    Command{"align.phase", "Alt+3", "Align", "Align by the phases of a step",
            [](S s, F) { s.alignment = Alignment::phase; }},
    Command{"align.event", "Alt+4", "Align", "Align by allocations and frees",
            [](S s, F) { s.alignment = Alignment::event; }},
    Command{"align.normalised", "Alt+5", "Align", "Align from beginning to end",
            [](S s, F) { s.alignment = Alignment::normalised; }},
    Command{"baseline", "B", "Align", "Make the focused run the baseline",
            choose_baseline_of_memory},
    Command{"focus.next", "Tab", "Align", "Focus the next run",
            [](S s, F f) { move_focus(s, f, 1); }},
    Command{"focus.previous", "Shift+Tab", "Align", "Focus the previous run",
            [](S s, F f) { move_focus(s, f, -1); }},
    // These arrange the lanes of many runs.
    Command{"lanes.sort", "Shift+K", "Lanes", "Sort lanes: as opened, by peak or by name",
            [](S s, F) { cycle(s.lanes.sort, 3), s.lanes.first = 0; }},
    Command{"overview", "Ctrl+G", "Lanes", "Overview: a list of all runs, or of a run's ranks",
            [](S s, F) { s.overview.is_open = !s.overview.is_open; }},
    Command{"overview.sort", "Ctrl+Shift+G", "Lanes",
            "Sort the overview: as opened, by name, verdict, peak or phase",
            [](S s, F) { s.overview.is_open = true, cycle(s.overview.sort, 5); }},
    Command{"lanes.down", "Alt+PageDown", "Lanes", "Scroll down in the lanes",
            [](S s, F f) { scroll_lanes(s, f, 1); }},
    Command{"lanes.up", "Alt+PageUp", "Lanes", "Scroll up in the lanes",
            [](S s, F f) { scroll_lanes(s, f, -1); }},
    Command{"lane.fold", "Shift+F", "Lanes", "Fold the focused lane, or unfold it",
            [](S s, F f) { toggle_fold(s, f, s.focus); }},
    Command{"lane.fold.others", "Ctrl+F", "Lanes", "Fold all lanes but the focused one",
            fold_others},
    Command{"lane.unfold", "Ctrl+U", "Lanes", "Unfold all lanes",
            [](S s, F) { s.lanes.folded.clear(); }},
    Command{"lane.rename", "Ctrl+N", "Lanes", "Rename the focused run", nullptr,
            Request::rename_lane},
    Command{"lane.close", "Ctrl+W", "Lanes", "Close the focused run",
            [](S s, F f) { close_run(s, f, s.focus); }},
    // These move and zoom the view.
    Command{"zoom.in", "Up", "Go", "Zoom in",
            [](S s, F f) { zoom_at(s, f, s.cursor.value_or(NAN), kZoomStep); }},
    Command{"zoom.out", "Down", "Go", "Zoom out",
            [](S s, F f) { zoom_at(s, f, s.cursor.value_or(NAN), 1 / kZoomStep); }},
    Command{"zoom.all", "0", "Go", "Show the whole x axis", [](S s, F) { s.view.reset(); }},
    Command{"zoom.selection", "F", "Go", "Zoom to the selection",
            [](S s, F) {
              if (s.selection) s.view = s.selection;
              s.selection.reset();
            }},
    Command{"height.in", "Shift+Up", "Go", "Zoom the y axis in, at its top",
            [](S s, F) { zoom_heights(s, 1, kZoomStep); }},
    Command{"height.out", "Shift+Down", "Go", "Zoom the y axis out",
            [](S s, F) { zoom_heights(s, 1, 1 / kZoomStep); }},
    Command{"height.up", "Alt+Up", "Go", "Move up the y axis",
            [](S s, F) { pan_heights(s, kPanPart); }},
    Command{"height.down", "Alt+Down", "Go", "Move down the y axis",
            [](S s, F) { pan_heights(s, -kPanPart); }},
    Command{"height.all", "Ctrl+Y", "Go", "Show the whole y axis",
            [](S s, F) { s.heights = {0, 1}; }},
    Command{"pan.left", "Left", "Go", "Move left",
            [](S s, F f) { pan_by(s, f, -kPanPart * view_of(s, f.extent).length()); }},
    Command{"pan.right", "Right", "Go", "Move right",
            [](S s, F f) { pan_by(s, f, kPanPart * view_of(s, f.extent).length()); }},
    Command{"cursor.left", ",", "Go", "Move the cursor one pixel left",
            [](S s, F f) { show_moment(s, origin_x(s, f) - f.column_x); }},
    Command{"cursor.right", ".", "Go", "Move the cursor one pixel right",
            [](S s, F f) { show_moment(s, origin_x(s, f) + f.column_x); }},
    Command{"event.next", "Ctrl+Right", "Go", "Next allocation or free",
            [](S s, F f) { show_moment(s, f.next_change_x.value_or(origin_x(s, f))); }},
    Command{"event.previous", "Ctrl+Left", "Go", "Previous allocation or free",
            [](S s, F f) { show_moment(s, f.previous_change_x.value_or(origin_x(s, f))); }},
    Command{"cursor.clear", "Escape", "Go", "Remove cursor and selection",
            [](S s, F) {
              s.cursor.reset(), s.selection.reset(), s.pick.reset(), s.at = TableMoment::peak;
            }},
    Command{"peak", "P", "Go", "Go to the peak",
            [](S s, F f) {
              if (s.focus < f.runs()) show_moment(s, f.peak_x[s.focus]);
            }},
    Command{"peak.next", "Shift+P", "Go", "Go to the next peak of a step or phase",
            [](S s, F f) {
              if (const auto* peaks = focused_list(f.peaks_x, s)) {
                go_to_next(s, *peaks, origin_x(s, f), tolerance_x(f));
              }
            }},
    Command{"failure.next", "Ctrl+Shift+F", "Go", "Go to the next out of memory (OOM)",
            [](S s, F f) {
              if (const auto* failures = focused_list(f.failures_x, s)) {
                go_to_next(s, *failures, origin_x(s, f), tolerance_x(f));
              }
            }},
    Command{"step.next", "]", "Go", "Show the next step", [](S s, F f) { show_step(s, f, 1); }},
    Command{"step.previous", "[", "Go", "Show the previous step",
            [](S s, F f) { show_step(s, f, -1); }},
    Command{"undo", "Z", "Go", "Undo", nullptr, Request::undo},
    Command{"redo", "Shift+Z", "Go", "Redo", nullptr, Request::redo},
    // These search for allocations.
    Command{"search", "/", "Find", "Search allocations", nullptr, Request::search},
    Command{"search.next", "N", "Find", "Next hit",
            [](S s, F f) {
              if (!f.hits_x.empty()) go_to_next(s, f.hits_x, origin_x(s, f), tolerance_x(f));
            }},
    Command{"search.previous", "Shift+N", "Find", "Previous hit",
            [](S s, F f) {
              if (!f.hits_x.empty()) go_to_previous(s, f.hits_x, origin_x(s, f), tolerance_x(f));
            }},
    Command{"search.clear", "Ctrl+K", "Find", "Clear the search", [](S s, F) { s.search.clear(); }},
    Command{"note.add", "M", "Find", "Add a note at the cursor", nullptr, Request::add_note},
    Command{"note.remove", "Shift+M", "Find", "Remove the nearest note", remove_nearest_note},
    Command{"note.next", "Ctrl+M", "Find", "Go to the next note",
            [](S s, F) { go_to_note(s, 1); }},
    Command{"note.previous", "Ctrl+Shift+M", "Find", "Go to the previous note",
            [](S s, F) { go_to_note(s, -1); }},
    Command{"note.list", "Alt+M", "Find", "List all notes", nullptr, Request::list_notes},
    Command{"palette", "Ctrl+P", "Find", "Find a command", nullptr, Request::palette},
    Command{"help", "F1", "Find", "Keys", nullptr, Request::help},
    // These select blocks.
    Command{"pick.next", "S", "Select", "Select the next block, the largest first",
            [](S s, F f) { pick_next(s, f, 1); }},
    Command{"pick.previous", "Shift+S", "Select", "Select the previous block",
            [](S s, F f) { pick_next(s, f, -1); }},
    Command{"pick.wider", "W", "Select", "Select all blocks of this name, then of its category",
            [](S s, F) { widen_pick(s); }},
    Command{"pick.copy", "Ctrl+C", "Select", "Copy what is selected, with its stack", nullptr,
            Request::copy_pick},
    Command{"pick.edit", "E", "Select", "Open the marked call in the editor", nullptr,
            Request::edit_pick},
    // These belong to the tree of what is alive.
    Command{"tree", "F9", "Select", "Flame graph or list of what is alive",
            [](S s, F) { s.tree.is_open = !s.tree.is_open; }},
    Command{"tree.form", "L", "Select", "Show the tree as a flame graph or as a list",
            [](S s, F) { cycle(s.tree.form, 2), s.tree.is_open = true, s.tree.first = 0; }},
    Command{"tree.of", "Q", "Select", "Tree of what is alive, of churn or of leak candidates",
            [](S s, F) { turn_tree(s, s.tree.of, 3); }},
    Command{"tree.by", "D", "Select", "Group the tree by stack, module or category",
            [](S s, F) { turn_tree(s, s.tree.by, 3); }},
    Command{"tree.from", "U", "Select", "Draw the tree top down or bottom up",
            [](S s, F) { turn_tree(s, s.tree.from, 2); }},
    Command{"tree.sort", "Shift+L", "Select", "Sort the list by its next column",
            [](S s, F) { cycle(s.tree.sort, 6), s.tree.first = 0; }},
    Command{"tree.compare", "Shift+D", "Select", "Compare the tree with the baseline, or not",
            [](S s, F) { s.tree.compares = !s.tree.compares; }},
    Command{"tree.fewer", "O", "Select", "Fewer frames: a higher threshold",
            [](S s, F) { set_threshold(s, 1); }},
    Command{"tree.more", "Shift+O", "Select", "More frames: a lower threshold",
            [](S s, F) { set_threshold(s, -1); }},
    Command{"tree.zoom", "Enter", "Select", "Zoom into this place of the tree",
            [](S s, F) {
              if (s.pick && s.pick->scope == PickScope::place) zoom_tree(s, s.pick->path);
            }},
    Command{"tree.out", "Shift+Enter", "Select", "Zoom out of this place of the tree",
            [](S s, F f) { zoom_tree(s, f.tree_above); }},
    Command{"tree.down", "Ctrl+PageDown", "Select", "Scroll down in the tree",
            [](S s, F f) { scroll_tree(s, f, kAlivePage); }},
    Command{"tree.up", "Ctrl+PageUp", "Select", "Scroll up in the tree",
            [](S s, F f) { scroll_tree(s, f, -kAlivePage); }},
    // These open and close panels.
    Command{"panel.alive", "F2", "Panels", "What is alive",
            [](S s, F) { s.panels.alive = !s.panels.alive; }},
    Command{"panel.table", "F3", "Panels", "Table of categories",
            [](S s, F) { s.panels.table = !s.panels.table; }},
    Command{"panel.minimap", "F4", "Panels", "Minimap",
            [](S s, F) { s.panels.minimap = !s.panels.minimap; }},
    Command{"panel.ribbon", "F5", "Panels", "Ribbon of phases and actions",
            [](S s, F) { s.panels.ribbon = !s.panels.ribbon; }},
    Command{"panel.steps", "F6", "Panels", "Bars of the steps",
            [](S s, F) { s.panels.steps = !s.panels.steps; }},
    Command{"panel.reserved", "F7", "Panels", "Reserved memory",
            [](S s, F) { s.panels.reserved = !s.panels.reserved; }},
    Command{"panel.plans", "J", "Panels", "Plans over the measured runs, or beside them",
            [](S s, F) { s.panels.plans = !s.panels.plans, s.pick.reset(); }},
    Command{"panel.treemap", "F8", "Panels", "What is alive as areas, or as rows",
            [](S s, F) { s.panels.treemap = !s.panels.treemap; }},
    Command{"panel.events", "Shift+G", "Panels", "Allocations and frees around the moment",
            [](S s, F) {
              s.panels.events = !s.panels.events;
              if (s.panels.events) s.panels.alive = true, s.panels.why = false;
            }},
    Command{"panel.why", "Shift+W", "Panels", "Why: out of memory, growth (leak), reserved memory",
            [](S s, F) {
              s.panels.why = !s.panels.why;
              if (s.panels.why) s.panels.alive = true;
            }},
    Command{"panel.front", "Ctrl+J", "Panels", "Next panel, where not all fit beside the lanes",
            next_front},
    Command{"at.next", "C", "Panels", "Tables at the peak or at the cursor",
            [](S s, F) { cycle(s.at, 2); }},
    Command{"group.next", "G", "Panels", "Group by category, name, age or not",
            [](S s, F) { cycle(s.grouping, kGroupings), s.alive_first = 0; }},
    Command{"alive.down", "PageDown", "Panels", "Scroll down in what is alive",
            [](S s, F f) { scroll_alive(s, f, kAlivePage); }},
    Command{"alive.up", "PageUp", "Panels", "Scroll up in what is alive",
            [](S s, F f) { scroll_alive(s, f, -kAlivePage); }},
    Command{"places.down", "Alt+Shift+PageDown", "Panels", "Scroll down in the places",
            [](S s, F f) { scroll_places(s, f, kAlivePage); }},
    Command{"places.up", "Alt+Shift+PageUp", "Panels", "Scroll up in the places",
            [](S s, F f) { scroll_places(s, f, -kAlivePage); }},
    Command{"table.down", "Shift+PageDown", "Panels", "Scroll down in the table of categories",
            [](S s, F f) { scroll_table(s, f, 1); }},
    Command{"table.up", "Shift+PageUp", "Panels", "Scroll up in the table of categories",
            [](S s, F f) { scroll_table(s, f, -1); }},
    // These belong to the what-if panel.
    Command{"whatif", "Alt+I", "What if", "What if: plan the focused run differently",
            toggle_what_if},
    Command{"whatif.keep", "Alt+K", "What if", "Keep this plan as a run",
            [](S s, F) { keep_what_if(s); }},
    Command{"whatif.drop", "Alt+Shift+K", "What if", "Drop the plan that was kept last",
            [](S s, F) {
              if (!s.plans.empty()) s.plans.pop_back();
            }},
    Command{"whatif.copy", "Alt+L", "What if", "Copy the command that records the program this way",
            nullptr, Request::copy_record_line},
    Command{"whatif.reset", "Alt+0", "What if", "Reset",
            [](S s, F) {
              if (s.what_if) s.what_if->config = s.what_if->base;
            }},
    Command{"whatif.lever.next", "Alt+J", "What if", "Next lever of a recorded program",
            turn_lever<1>},
    Command{"whatif.lever.previous", "Alt+Shift+J", "What if", "Previous lever", turn_lever<-1>},
    Command{"whatif.lever.mark", "Alt+X", "What if", "Mark the lever, to be run with others",
            [](S s, F f) {
              if (s.what_if) mark_lever(*s.what_if, f.levers);
            }},
    Command{"whatif.lever.run", "Alt+G", "What if",
            "Record the program with the marked levers, or with the chosen one",
            nullptr, Request::run_levers},
    Command{"whatif.lever.stop", "Alt+Shift+G", "What if", "Stop recording with levers", nullptr,
            Request::stop_levers},
    Command{"whatif.batch.more", "Alt+B", "What if", "Larger batch",
            turn_control<Control::batch, 1>},
    Command{"whatif.batch.less", "Alt+Shift+B", "What if", "Smaller batch",
            turn_control<Control::batch, -1>},
    Command{"whatif.world.more", "Alt+W", "What if", "More ranks", turn_control<Control::world, 1>},
    Command{"whatif.world.less", "Alt+Shift+W", "What if", "Fewer ranks",
            turn_control<Control::world, -1>},
    Command{"whatif.accumulate.more", "Alt+A", "What if", "More microbatches per step",
            turn_control<Control::accumulate, 1>},
    Command{"whatif.accumulate.less", "Alt+Shift+A", "What if", "Fewer microbatches per step",
            turn_control<Control::accumulate, -1>},
    Command{"whatif.strategy.next", "Alt+S", "What if", "Next strategy: single, DDP or FSDP",
            turn_control<Control::strategy, 1>},
    Command{"whatif.strategy.previous", "Alt+Shift+S", "What if", "Previous strategy",
            turn_control<Control::strategy, -1>},
    Command{"whatif.reshard.next", "Alt+R", "What if", "Next choice of reshard after forward",
            turn_control<Control::reshard, 1>},
    Command{"whatif.reshard.previous", "Alt+Shift+R", "What if",
            "Previous choice of reshard after forward",
            turn_control<Control::reshard, -1>},
    Command{"whatif.dtype.next", "Alt+D", "What if", "Next dtype of parameters",
            turn_control<Control::param_dtype, 1>},
    Command{"whatif.dtype.previous", "Alt+Shift+D", "What if", "Previous dtype of parameters",
            turn_control<Control::param_dtype, -1>},
    Command{"whatif.reduce.next", "Alt+U", "What if", "Next dtype of reductions",
            turn_control<Control::reduce_dtype, 1>},
    Command{"whatif.reduce.previous", "Alt+Shift+U", "What if", "Previous dtype of reductions",
            turn_control<Control::reduce_dtype, -1>},
    Command{"whatif.offload.next", "Alt+O", "What if", "Next choice of offload",
            turn_control<Control::offload, 1>},
    Command{"whatif.offload.previous", "Alt+Shift+O", "What if", "Previous choice of offload",
            turn_control<Control::offload, -1>},
    Command{"whatif.recompute.next", "Alt+C", "What if", "Next choice of recompute",
            turn_control<Control::recompute, 1>},
    Command{"whatif.recompute.previous", "Alt+Shift+C", "What if", "Previous choice of recompute",
            turn_control<Control::recompute, -1>},
    Command{"whatif.wrap.next", "Alt+P", "What if", "Next choice of wrap",
            turn_control<Control::wrap, 1>},
    Command{"whatif.wrap.previous", "Alt+Shift+P", "What if", "Previous choice of wrap",
            turn_control<Control::wrap, -1>},
};

/// Returns the first shown row of `count` after a list was scrolled by rows.
size_t scrolled(size_t first, int64_t rows, size_t count) {
  const int64_t last = std::max<int64_t>(0, static_cast<int64_t>(count) - 1);
  return static_cast<size_t>(std::clamp<int64_t>(static_cast<int64_t>(first) + rows, 0, last));
}

}  // namespace

void scroll_alive(ViewState& state, const Facts& facts, int64_t rows) {
  state.alive_first = scrolled(state.alive_first, rows, facts.alive_rows);
}

void scroll_places(ViewState& state, const Facts& facts, int64_t rows) {
  state.places_first = scrolled(state.places_first, rows, facts.place_rows);
}

void scroll_tree(ViewState& state, const Facts& facts, int64_t rows) {
  state.tree.first = scrolled(state.tree.first, rows, facts.tree_rows);
}

void zoom_tree(ViewState& state, std::vector<std::string> path) {
  state.tree.zoom = std::move(path);
  state.tree.first = 0;
}

void scroll_table(ViewState& state, const Facts& facts, int64_t rows) {
  // The sum is a row that does not scroll.
  const size_t scrolling = facts.table_rows == 0 ? 0 : facts.table_rows - 1;
  state.table_first = scrolled(state.table_first, rows, scrolling);
}

std::span<const Command> commands() { return kCommands; }

const Command* find_command(std::string_view id) {
  const auto at = std::ranges::find(kCommands, id, &Command::id);
  return at == kCommands.end() ? nullptr : &*at;
}

const Command* command_of_key(std::string_view key) {
  const auto at = std::ranges::find(kCommands, key, &Command::key);
  return at == kCommands.end() ? nullptr : &*at;
}

std::vector<const Command*> matching_commands(std::string_view text) {
  std::vector<std::string> words;
  std::istringstream parts{in_lower_case(text)};
  for (std::string word; parts >> word;) words.push_back(word);
  std::vector<const Command*> found;
  for (const Command& command : kCommands) {
    const std::string all = in_lower_case(std::string(command.title) + " " +
                                          std::string(command.id) + " " + std::string(command.key));
    const bool fits = std::ranges::all_of(
        words, [&](const std::string& word) { return all.find(word) != std::string::npos; });
    if (fits) found.push_back(&command);
  }
  // A title that begins with the typed text comes first.
  const std::string typed = in_lower_case(text);
  std::stable_partition(found.begin(), found.end(), [&](const Command* command) {
    return in_lower_case(command->title).starts_with(typed);
  });
  return found;
}

}  // namespace shardlens::viewer
