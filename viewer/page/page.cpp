#include "viewer/page/page.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "base/units.h"
#include "viewer/model/trace/joined_trace.h"
#include "viewer/page/page_columns.h"
#include "viewer/page/page_facts.h"
#include "viewer/page/page_files.h"
#include "viewer/paint/theme.h"
#include "viewer/scene/scene.h"
#include "viewer/state/facts.h"
#include "viewer/state/lanes.h"

namespace shardlens::viewer {

namespace {

constexpr int64_t kMostPageChanges = 8'000'000;  // 20 MB, one second to open

std::string html_escaped(std::string_view text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '&':
        html += "&amp;";
        break;
      case '"':
        html += "&quot;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

/// Returns JSON in which nothing can close the HTML element around it.
std::string json_escaped(std::string text) {
  std::string safe;
  safe.reserve(text.size());
  for (const char c : text) {
    if (c == '<') {
      safe += "\\u003c";
    } else {
      safe += c;
    }
  }
  return safe;
}

std::string css_color(const Color& color) {
  return fmt::format("#{:02x}{:02x}{:02x}", color.r, color.g, color.b);
}

/// Returns the theme's colours as variables of the style.
std::string theme_style(Theme theme) {
  const Colors& colors = colors_of(theme);
  const std::pair<const char*, Color> all[] = {{"background", colors.background},
                                               {"card", colors.card},
                                               {"card-edge", colors.card_edge},
                                               {"plot", colors.plot},
                                               {"grid", colors.grid},
                                               {"text", colors.text},
                                               {"muted", colors.muted},
                                               {"accent", colors.accent},
                                               {"on-accent", colors.on_accent},
                                               {"more", colors.more},
                                               {"less", colors.less},
                                               {"warning", colors.warning},
                                               {"edge", colors.edge},
                                               {"cursor", colors.cursor},
                                               {"plan", colors.plan}};
  std::string style = fmt::format("[data-theme={}] {{", to_string(theme));
  for (const auto& [name, color] : all) style += fmt::format(" --{}: {};", name, css_color(color));
  return style + " }\n";
}

void write_head(const std::vector<PageLane>& lanes, Theme theme, std::ostream& out) {
  // The policy lets the page load nothing, whatever it contains.
  out << fmt::format(
      "<!doctype html>\n<html lang=\"en\" data-theme=\"{}\">\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n<title>{}</title>\n<style>\n",
      to_string(theme), html_escaped(page_title(lanes)));
  for (size_t i = 0; i < kWords<Theme>.size(); ++i) out << theme_style(static_cast<Theme>(i));
  out << page_style() << "</style>\n";
}

/// Writes the parts that can be read without a script: names, doubts and peaks.
void write_lane(const PageLane& lane, std::ostream& out) {
  const LaneInfo& info = lane.rank->lane.info();
  const Extent& peak = lane.rank->lane.peak();
  const auto paragraph = [&](const char* kind, const std::string& text) {
    if (!text.empty()) out << fmt::format("<p class=\"{}\">{}</p>\n", kind, html_escaped(text));
  };
  out << fmt::format("<section class=\"lane\">\n<h2>{}</h2>\n", html_escaped(lane.name));
  paragraph("strategy", lane.run->strategy);
  paragraph("notice", info.header.notice);
  paragraph("doubt", doubt_of_lane(lane));
  out << fmt::format("<p class=\"peak\">peak of {} memory: <b>{}{}</b> ({} bytes), {}</p>\n",
                     to_string(info.space), profiler::bound_prefix(info.judgement),
                     bytes_text(peak.max_bytes), peak.max_bytes,
                     html_escaped(moment_text(*lane.rank, peak.max_change)));
  const LaneFindings& found = info.findings;
  for (const FailedRequest& failure : lane.rank->lane.arrays().failures) {
    paragraph("doubt", failure_text(*lane.rank, failure));
  }
  paragraph("doubt", found.growth);
  if (const auto use = lane.is_plan ? std::nullopt : lane.run->device_use(*lane.rank)) {
    paragraph("notice", "headroom " + headroom_text(*use));
  }
  const auto details = [&](const char* title, const std::string& rows) {
    if (rows.empty()) return;
    out << fmt::format("<details><summary>{}</summary><pre class=\"stack\">{}</pre></details>\n",
                       title, html_escaped(rows));
  };
  details("out of memory: what was alive", found.out_of_memory);
  details("reserved memory: its parts", found.reserved);
  for (const StreamUse& use : streams_at_peak(*lane.rank)) paragraph("notice", use.text());
  out << "</section>\n";
}

void write_data(const PageLane& lane, std::ostream& out) {
  const LaneKinds kinds = kinds_of(lane.rank->lane);
  out << "<script type=\"text/plain\" class=\"names\">" << packed_text(lane_names(lane, kinds))
      << "</script>\n<script type=\"text/plain\" class=\"changes\">"
      << packed_changes(lane.rank->lane, kinds) << "</script>\n";
}

PageLane page_lane(const Run& run, const RankLane& rank, bool is_folded) {
  PageLane lane{.name = run.name,
                .run = &run,
                .rank = &rank,
                .is_folded = is_folded,
                .stacks = rank.lane.info().stacks};
  if (rank.lane.info().header.world_size > 1)
    lane.name += fmt::format(", rank {}", rank.lane.rank());
  return lane;
}

/// Returns the lanes that the state shows.
std::vector<PageLane> page_lanes(const std::vector<Run>& runs, const ViewState& state) {
  std::vector<PageLane> lanes;
  for (const Run& run : runs) {
    const size_t shown = shown_rank(run, state);
    const bool folds = is_folded(state.lanes, run.key());
    for (size_t rank = 0; rank < run.ranks.size(); ++rank) {
      const bool is_shown = state.ranks != Ranks::one || rank == shown;
      if (is_shown) lanes.push_back(page_lane(run, run.ranks[rank], folds));
    }
    if (!run.plan) continue;
    lanes.push_back({.name = run.plan_name,
                     .run = &run,
                     .rank = &*run.plan,
                     .is_folded = folds,
                     .is_plan = true});
  }
  return lanes;
}

/// Keeps the baseline and the lanes with the highest peaks, as many as a page can show fast.
void leave_highest(std::vector<PageLane>& lanes, const RankLane* baseline) {
  std::vector<const RankLane*> kept;
  for (const PageLane& lane : lanes) kept.push_back(lane.rank);
  std::ranges::stable_sort(kept, std::greater(), [&](const RankLane* rank) {
    return std::pair(rank == baseline, rank->lane.peak().max_bytes);
  });
  int64_t changes = 0;
  const auto is_over = [&](const RankLane* rank) {
    changes += rank->lane.changes();
    return rank != baseline && changes > kMostPageChanges;
  };
  kept.erase(std::ranges::find_if(kept, is_over), kept.end());
  std::erase_if(lanes, [&](const PageLane& lane) {
    return std::ranges::find(kept, lane.rank) == kept.end();
  });
}

}  // namespace

void write_page(const std::vector<Run>& runs, const ViewState& state, std::ostream& out) {
  std::vector<PageLane> lanes = page_lanes(runs, state);
  const size_t all = lanes.size();
  const Run& base = runs[std::min(state.baseline, runs.size() - 1)];
  const RankLane* const baseline = &base.ranks[shown_rank(base, state)];
  leave_highest(lanes, baseline);
  const auto at = std::ranges::find(lanes, baseline, &PageLane::rank);
  write_head(lanes, state.theme, out);
  out << fmt::format("<body>\n<header>\n<h1>{}</h1>\n", html_escaped(page_title(lanes)));
  if (lanes.size() < all) {
    out << fmt::format(
        "<p class=\"doubt\">{} of {} lanes are shown, those with the highest peaks: all together "
        "have too many allocations for a page</p>\n",
        lanes.size(), all);
  }
  out << "</header>\n<main>\n";
  for (const PageLane& lane : lanes) write_lane(lane, out);
  out << "</main>\n<script type=\"application/json\" id=\"facts\">"
      << json_escaped(page_facts(lanes, static_cast<size_t>(at - lanes.begin()), state))
      << "</script>\n";
  for (const PageLane& lane : lanes) write_data(lane, out);
  out << page_elements() << "<script>\n" << page_script() << "</script>\n</body>\n</html>\n";
}

}  // namespace shardlens::viewer
