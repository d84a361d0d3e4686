#include "viewer/scene/control_text.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "profiler/recording/profile.h"
#include "viewer/paint/theme.h"
#include "viewer/scene/panels/tree_panel.h"
#include "viewer/state/commands.h"
#include "viewer/state/facts.h"

namespace shardlens::viewer {

namespace {

/// Returns the key of a command: " (Shift+F)".
std::string key_text(std::string_view command) {
  return fmt::format(" ({})", find_command(command)->key);
}

std::string titled(std::string_view command) {
  return std::string(find_command(command)->title) + key_text(command);
}

std::string text_of_category(const SceneInput& input, const Area& area) {
  const auto category = static_cast<Category>(area.index);
  bool has_shards = false;
  for (const Run& run : input.runs) {
    has_shards |= profiler::has_shards(run.ranks.front().lane.info().header);
  }
  const std::string words = words_of(category, has_shards);
  if (area.kind == Area::Kind::category) {
    return fmt::format("{}: click to select it everywhere", words);
  }
  return fmt::format("{}: click to {} it; only this category{}", words,
                     input.state.shows(category) ? "hide" : "show", key_text("category.isolate"));
}

std::string text_of_run(const SceneInput& input, const Area& area, const std::string& words) {
  return area.run < input.runs.size() ? input.runs[area.run].name + ": " + words : words;
}

const RankLane* shown_rank_of(const SceneInput& input, size_t run) {
  if (run >= input.runs.size()) return nullptr;
  return &input.runs[run].ranks[shown_rank(input.runs[run], input.state)];
}

std::string text_of_choice(const Area& area) {
  switch (static_cast<TreeChoice>(area.run)) {
    case TreeChoice::of:
      return titled("tree.of");
    case TreeChoice::by:
      return titled("tree.by");
    case TreeChoice::from:
      return titled("tree.from");
    case TreeChoice::form:
      break;
  }
  return titled("tree.form");
}

std::string text_of_lever(const SceneInput& input, const Area& area) {
  if (input.levers == nullptr || area.index >= input.levers->rows.size()) return "";
  const LeverRow& row = input.levers->rows[area.index];
  if (area.kind == Area::Kind::lever_mark) return titled("whatif.lever.mark");
  if (area.kind == Area::Kind::lever) {
    return fmt::format("{}: {}", row.name(), input.levers->details(row));
  }
  switch (row.state) {
    case LeverState::waiting:
    case LeverState::running:
      return "click to stop it; stop all" + key_text("whatif.lever.stop");
    case LeverState::measured:
      return "click to show it as a lane";
    case LeverState::idle:
      return row.why;
    default:
      return "click to record the program with it, in the background" +
             key_text("whatif.lever.run");
  }
}

}  // namespace

std::string control_text(const SceneInput& input, const Area& area) {
  switch (area.kind) {
    case Area::Kind::legend:
    case Area::Kind::category:
      return text_of_category(input, area);
    case Area::Kind::card:
      return text_of_run(input, area,
                         "click to focus" + key_text("focus.next") +
                             ", wheel to scroll the lanes; rename" + key_text("lane.rename"));
    case Area::Kind::control: {
      const auto control = static_cast<Control>(area.run);
      return fmt::format("{}: {}", kWords<Control>[area.run], control_effect(control));
    }
    case Area::Kind::lever:
    case Area::Kind::lever_mark:
    case Area::Kind::lever_act:
      return text_of_lever(input, area);
    case Area::Kind::folded_lane:
      return text_of_run(input, area, "click to unfold; unfold all" + key_text("lane.unfold"));
    case Area::Kind::overview_row:
      return text_of_run(input, area, "click to open its lane; the lanes" + key_text("overview"));
    case Area::Kind::overview_sort:
      return "click to sort by this column";
    case Area::Kind::lane_fold:
      return text_of_run(input, area, "fold" + key_text("lane.fold"));
    case Area::Kind::lane_close:
      return text_of_run(input, area,
                         "close" + key_text("lane.close") + "; undo" + key_text("undo"));
    case Area::Kind::lane_bar:
      return titled("lanes.down");
    case Area::Kind::minimap:
      return (input.state.view ? "drag to move the view; show all"
                               : "drag over a part to show it; show all") +
             key_text("zoom.all");
    case Area::Kind::table:
      return "wheel to scroll; export" + key_text("export.table");
    case Area::Kind::call:
      return "click to mark this call, wheel for the others; open it in your editor" +
             key_text("pick.edit");
    case Area::Kind::failure: {
      const RankLane* const rank = shown_rank_of(input, area.run);
      const bool is_known = rank != nullptr && area.index < rank->lane.arrays().failures.size();
      return is_known ? failure_text(*rank, rank->lane.arrays().failures[area.index]) : "";
    }
    case Area::Kind::tree_choice:
      return text_of_choice(area);
    case Area::Kind::tab:
      return titled("panel.front");
    case Area::Kind::tree_sort:
      return titled("tree.sort");
    default:
      return "";
  }
}

}  // namespace shardlens::viewer
