// Everything that a user can change about the picture, in one value. Menus, keys, the palette, undo
// and session files all act on it; pictures follow only from it and the recordings.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/choice.h"
#include "viewer/model/alive_graph.h"
#include "viewer/model/compare.h"
#include "viewer/model/warp.h"
#include "viewer/state/what_if.h"

namespace shardlens::viewer {

enum class LaneLayout : uint8_t { rows, columns, overlay, difference };
constexpr auto choice_words(LaneLayout) {
  return words("rows", "columns", "overlay", "difference");
}

/// The top of the y axes: the highest of all peaks, each run's own peak, the device's memory, or
/// the highest moment in view.
enum class Height : uint8_t { shared, own, capacity, view };
constexpr auto choice_words(Height) { return words("shared", "own", "capacity", "view"); }

enum class Theme : uint8_t { light, dark, contrast };
constexpr auto choice_words(Theme) { return words("light", "dark", "contrast"); }

/// The shown ranks of a run: the one with the highest peak (or the chosen one), each in its own
/// lane, or all folded into minimum, median and maximum.
enum class Ranks : uint8_t { one, each, folded };
constexpr auto choice_words(Ranks) { return words("one", "each", "folded"); }

/// The content of plots: categories stacked, single blocks stacked, or blocks at their addresses in
/// memory.
enum class Detail : uint8_t { bands, blocks, addresses };
constexpr auto choice_words(Detail) { return words("bands", "blocks", "addresses"); }

/// The memory that is shown: that of tensors, on each run's own device (the host if that is the
/// CPU); that of the host, pageable or pinned; or the segments that the caching allocator has taken
/// from the driver for tensors.
enum class ShownMemory : uint8_t { tensors, host, pinned, segments };
constexpr auto choice_words(ShownMemory) { return words("tensors", "host", "pinned", "segments"); }

/// The moment of the tables: each run's own peak, or the cursor for all.
enum class TableMoment : uint8_t { peak, cursor };
constexpr auto choice_words(TableMoment) { return words("peak", "cursor"); }

/// The order of lanes: as they were opened, the highest peak first, or by name.
enum class LaneSort : uint8_t { opened, peak, name };
constexpr auto choice_words(LaneSort) { return words("opened", "peak", "name"); }

/// The order of the overview: as the runs were opened, by name, the worst verdict first, the
/// highest peak first, or by the part of the step in which the peak is.
enum class OverviewSort : uint8_t { opened, name, verdict, peak, part };
constexpr auto choice_words(OverviewSort) {
  return words("opened", "name", "verdict", "peak", "part");
}

/// The scope of the user's selection: a block, all blocks of its name, all of its category, or all
/// below a place of the tree.
enum class PickScope : uint8_t { block, name, category, place };
constexpr auto choice_words(PickScope) { return words("block", "name", "category", "place"); }

constexpr uint32_t kNoBlock = UINT32_MAX;

/// A selection of the user. The block is the one whose facts are shown: with a wider scope, one of
/// its blocks.
struct Pick {
  size_t run = 0;
  size_t rank = 0;  // index in the run
  PickScope scope{};
  uint32_t block = kNoBlock;  // none: a category without a live block
  Category category{};
  std::vector<std::string> path{};  // of a place, starting below the tree's root
  std::optional<size_t> call{};     // the marked call of the block's stack, from the innermost

  /// Reduces a place to its block: the tree has other places now.
  void leave_place() {
    if (scope == PickScope::place) scope = PickScope::block;
    path.clear();
  }

  bool operator==(const Pick&) const = default;
};

enum class TreeForm : uint8_t { flame, list };
constexpr auto choice_words(TreeForm) { return words("flame", "list"); }

constexpr std::array<double, 7> kTreeThresholds = {0, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05};

/// The panel that shows blocks as a tree.
struct TreeView {
  bool is_open = false;
  TreeContent of{};
  TreeForm form{};
  profiler::TreeGrouping by{};
  profiler::TreeStart from{};
  PlaceSort sort{};
  bool compares = true;             // with the baseline, if another run is in focus
  size_t threshold = 1;             // index in kTreeThresholds: smaller frames are merged
  size_t first = 0;                 // first shown row
  std::vector<std::string> zoom{};  // the path of the place that fills the width

  bool operator==(const TreeView&) const = default;
};

struct Note {
  double x = 0;
  std::string text;
  Alignment alignment{};  // that x belongs to

  bool operator==(const Note&) const = default;
};

/// A name that the user gave to a run.
struct LaneName {
  std::string run;  // its key
  std::string name;

  bool operator==(const LaneName&) const = default;
};

/// The lanes of runs; a run is identified by its key (Run::key).
struct Lanes {
  LaneSort sort{};
  size_t first = 0;                 // first shown line
  size_t first_rank = 0;            // first shown rank of a run that shows each of its ranks
  std::vector<std::string> folded;  // shown only by name and peak
  std::vector<std::string> closed;  // not opened, although their file or folder is
  std::vector<LaneName> names;

  bool operator==(const Lanes&) const = default;
};

/// The list of all runs, or of all ranks of a single run, in place of their lanes.
struct Overview {
  bool is_open = false;
  OverviewSort sort{};
  size_t first = 0;  // first shown row

  bool operator==(const Overview&) const = default;
};

struct Panels {
  bool alive = true;
  bool table = true;
  bool minimap = true;
  bool ribbon = true;
  bool steps = true;
  bool reserved = true;
  bool hatches = false;
  bool plans = true;     // of measured runs: over them, else beside them
  bool treemap = false;  // live allocations as areas; else as rows
  bool events = false;   // instead of live allocations: events around the moment
  bool why = false;      // instead of both: what the recording says about failures and growth

  bool operator==(const Panels&) const = default;
};

/// The panel in front in a window that has no room for all of them beside the lanes.
enum class FrontPanel : uint8_t { lanes, table, alive, selection, tree, what_if };
constexpr auto choice_words(FrontPanel) {
  return words("lanes", "table", "alive", "selection", "tree", "what if");
}

struct ViewState {
  std::vector<std::string> files;  // as they were opened
  std::optional<int> device{};     // of snapshots of several
  Clock clock = Clock::predicted;  // of recordings that have predicted times
  Alignment alignment = Alignment::step;
  LaneLayout layout = LaneLayout::columns;
  Height height = Height::shared;
  Theme theme = Theme::light;
  Ranks ranks = Ranks::one;
  Detail detail = Detail::bands;
  TableMoment at = TableMoment::peak;
  ShownMemory memory = ShownMemory::tensors;
  Grouping grouping = Grouping::category;
  Panels panels;
  FrontPanel front = FrontPanel::lanes;
  Lanes lanes{};
  Overview overview{};
  size_t baseline = 0;                      // index of a run
  std::vector<size_t> earlier_baselines{};  // the latest first: for runs in other memory
  size_t focus = 0;                         // the run that keys and panels act on
  std::optional<size_t> rank;               // index in a run; nothing: that of the highest peak
  std::optional<Range> view;                // of x; nothing: all
  Range heights{0, 1};                      // the part of the y axes that is shown
  std::optional<double> cursor;
  std::optional<Range> selection;
  uint32_t hidden_categories = 0;         // one bit each
  size_t alive_first = 0;                 // first shown row of the live allocations
  std::optional<int64_t> events_first{};  // first shown change, as long as the moment is in view
  size_t places_first = 0;                // of their places, or of those that changed
  size_t table_first = 0;                 // of the table, below the sum
  double zoom = 1;                        // of the whole interface
  std::string search;
  std::vector<Note> notes;
  std::optional<Pick> pick{};
  TreeView tree{};
  std::vector<PlanRequest> plans;       // kept from the what-if panel: runs after the files
  std::optional<WhatIfEdit> what_if{};  // while that panel is open: the last run of all

  bool operator==(const ViewState&) const = default;

  bool shows(Category category) const {
    return (hidden_categories >> static_cast<unsigned>(category) & 1U) == 0;
  }
};

}  // namespace shardlens::viewer
