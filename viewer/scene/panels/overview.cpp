// Draws the overview: one line for each run, or for each rank of a single run, with its verdict and
// its peak.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "base/units.h"
#include "profiler/compare/origin.h"
#include "viewer/scene/parts.h"

namespace shardlens::viewer {

namespace {

constexpr float kOverviewRow = 20;       // points
constexpr float kLeastOverviewRow = 13;  // if that lets all rows fit
constexpr float kNarrow = 760;

/// The verdict on a rank, worst first.
enum class Outcome : uint8_t { out_of_memory, does_not_fit, grows, needs_retries, fits, unknown };

struct OverviewRow {
  size_t run = 0;
  size_t rank = 0;  // index in the run
  std::string name;
  Outcome outcome{};
  std::string verdict;
  std::string part;  // of the step in which the peak is
  int64_t peak_bytes = 0;
  int64_t reserved_bytes = 0;  // 0: not recorded
};

std::pair<Outcome, std::string> verdict_of(const Run& run, const RankLane& rank) {
  const Lane& lane = rank.lane;
  if (!lane.arrays().failures.empty()) return {Outcome::out_of_memory, "out of memory"};
  if (run.outlook) {
    const Outlook& plan = *run.outlook;
    const Outcome outcome = plan.fits            ? Outcome::fits
                            : plan.needs_retries ? Outcome::needs_retries
                                                 : Outcome::does_not_fit;
    return {outcome, plan.verdict};
  }
  const auto use = run.device_use(rank);
  if (use && use->free_bytes() < 0) {
    return {Outcome::does_not_fit, fmt::format("does not fit: {} over the device's memory",
                                               bytes_text(-use->free_bytes()))};
  }
  const std::string& growth = lane.info().findings.growth;
  if (!growth.empty() && lane.first_step() != nullptr) return {Outcome::grows, growth};
  if (!use) return {Outcome::unknown, "the device's memory is not known"};
  return {Outcome::fits, fmt::format("fits: {} free", bytes_text(use->free_bytes()))};
}

OverviewRow overview_row_of(const SceneInput& input, size_t run, size_t rank) {
  const Run& of = input.runs[run];
  const RankLane& lane = of.ranks[rank];
  const Extent& peak = lane.lane.peak();
  const auto [outcome, verdict] = verdict_of(of, lane);
  std::string part;
  if (peak.max_change >= 0) {
    part = stretch_text(lane.lane, peak.max_change);
    const std::string action = action_text(lane, peak.max_change);
    if (!action.empty()) part += ", " + action;
  }
  return {.run = run,
          .rank = rank,
          .name = of.name,
          .outcome = outcome,
          .verdict = verdict,
          .part = part,
          .peak_bytes = peak.max_bytes,
          .reserved_bytes = lane.lane.reserved_peak()};
}

/// Sorts the rows; equal ones stay as the runs were opened.
void sort_rows(std::vector<OverviewRow>& rows, OverviewSort sort) {
  switch (sort) {
    case OverviewSort::opened:
      return;
    case OverviewSort::name:
      std::ranges::stable_sort(rows, profiler::is_naturally_less, &OverviewRow::name);
      return;
    case OverviewSort::verdict:
      std::ranges::stable_sort(rows, {}, &OverviewRow::outcome);
      return;
    case OverviewSort::peak:
      std::ranges::stable_sort(rows, std::greater(), &OverviewRow::peak_bytes);
      return;
    case OverviewSort::part:
      std::ranges::stable_sort(rows, profiler::is_naturally_less, &OverviewRow::part);
      return;
  }
}

std::vector<OverviewRow> overview_rows(const SceneInput& input) {
  std::vector<OverviewRow> rows;
  const bool has_one_run = input.runs.size() == 1;
  for (size_t run = 0; run < input.runs.size(); ++run) {
    const Run& of = input.runs[run];
    const bool shows_all = has_one_run || input.state.ranks != Ranks::one;
    for (size_t rank = 0; rank < of.ranks.size(); ++rank) {
      if (shows_all || rank == of.peak_rank()) rows.push_back(overview_row_of(input, run, rank));
    }
  }
  sort_rows(rows, input.state.overview.sort);
  return rows;
}

/// The columns of a line; those without a width are not drawn.
struct OverviewColumns {
  Box name;
  Box rank;
  Box verdict;
  Box bytes;
  Box bar;
  Box part;
};

OverviewColumns columns_of_line(const Painter& paint, Box line) {
  const float gap = paint.px(8);
  const auto take = [&](float width) {
    const Box box = line.take_left(width);
    line.take_left(gap);
    return box;
  };
  const float whole = line.w;
  OverviewColumns columns;
  columns.name = take(whole * 0.2F);
  columns.rank = take(paint.px(70));
  columns.verdict = take(whole * 0.27F);
  columns.bytes = take(paint.px(84));
  if (whole >= paint.px(kNarrow)) {
    columns.part = line.take_right(whole * 0.22F);
    line.take_right(gap);
  }
  columns.bar = line;
  return columns;
}

void draw_heads(Scene& scene, const OverviewColumns& columns, bool has_ranks) {
  Painter& paint = scene.paint;
  const auto head = [&](const Box& box, std::string_view text, OverviewSort sort, bool is_right) {
    if (box.w <= 0) return;
    const bool is_sorted = scene.state().overview.sort == sort;
    const Color& color = is_sorted ? paint.colors.accent : paint.colors.muted;
    if (is_right) {
      paint.text_right(box, text, color, Style::small);
    } else {
      paint.text(box, text, color, Style::small);
    }
    paint.area({box, Area::Kind::overview_sort, 0, static_cast<size_t>(sort)});
  };
  head(columns.name, "run", OverviewSort::name, false);
  if (has_ranks) paint.text(columns.rank, "rank", paint.colors.muted, Style::small);
  head(columns.verdict, "verdict", OverviewSort::verdict, false);
  head(columns.bytes, "peak", OverviewSort::peak, true);
  head(columns.bar, "reserved behind it", OverviewSort::peak, false);
  head(columns.part, "peak in", OverviewSort::part, false);
}

/// Returns the height of a row: lower than usual if all then fit.
float row_height(const Painter& paint, float room, size_t rows) {
  const float share = room / static_cast<float>(std::max<size_t>(1, rows));
  const bool fits = share >= paint.px(kLeastOverviewRow);
  return fits ? std::min(share, paint.px(kOverviewRow)) : paint.px(kOverviewRow);
}

void draw_overview_row(Scene& scene, const OverviewRow& row, const OverviewColumns& columns,
                       int64_t most) {
  Painter& paint = scene.paint;
  const Run& run = scene.in.runs[row.run];
  const bool is_bad = row.outcome == Outcome::out_of_memory || row.outcome == Outcome::does_not_fit;
  const bool is_doubtful = row.outcome == Outcome::grows || row.outcome == Outcome::needs_retries;
  const Color& color = is_bad        ? paint.colors.more
                       : is_doubtful ? paint.colors.warning
                                     : paint.colors.text;
  paint.text(columns.name, paint.fitted_ends(Style::small, row.name, columns.name.w),
             paint.colors.text, Style::small);
  if (run.ranks.size() > 1) {
    paint.text(columns.rank,
               fmt::format("{} of {}", run.ranks[row.rank].lane.rank(), run.ranks.size()),
               paint.colors.text, Style::small);
  }
  paint.text(columns.verdict, row.verdict, color, Style::small);
  paint.text_right(columns.bytes, bytes_text(row.peak_bytes), paint.colors.text, Style::small);
  paint.text(columns.part, row.part, paint.colors.muted, Style::small);
  const float edge = columns.bar.h / 4;
  const Box bar{columns.bar.x, columns.bar.y + edge, columns.bar.w, columns.bar.h - 2 * edge};
  const auto part = [&](int64_t bytes) {
    Box box = bar;
    box.w *= static_cast<float>(static_cast<double>(bytes) / static_cast<double>(most));
    return box;
  };
  paint.fill(part(row.reserved_bytes), paint.colors.grid, paint.px(2));
  Box rest = part(row.peak_bytes);
  const CategoryBytes& bytes = run.ranks[row.rank].lane.peak().at_max;
  for (const Category category : stacking_order()) {
    const int64_t of_category = bytes[static_cast<size_t>(category)];
    if (of_category > 0) paint.fill(rest.take_left(part(of_category).w), color_of(category));
  }
}

}  // namespace

size_t overview_lines(const SceneInput& input) { return overview_rows(input).size(); }

void draw_overview(Scene& scene) {
  if (scene.geometry.overview.h <= 0) return;
  Painter& paint = scene.paint;
  paint.card(scene.geometry.overview, paint.colors.card_edge);
  paint.area({scene.geometry.overview, Area::Kind::overview, 0, 0});
  Box box = scene.geometry.overview.inset(paint.px(10));
  const std::vector<OverviewRow> rows = overview_rows(scene.in);
  int64_t most = 1;
  for (const OverviewRow& row : rows) most = std::max({most, row.peak_bytes, row.reserved_bytes});
  const bool has_ranks =
      std::ranges::any_of(scene.in.runs, [](const Run& run) { return run.ranks.size() > 1; });
  draw_heads(scene, columns_of_line(paint, box.take_top(paint.px(kOverviewRow))), has_ranks);
  const float height = row_height(paint, box.h, rows.size());
  const auto lines = static_cast<size_t>(std::max(1.F, box.h / height));
  const size_t last = rows.size() - std::min(rows.size(), lines);
  const size_t first = std::min(scene.state().overview.first, last);
  for (size_t i = first; i < std::min(rows.size(), first + lines); ++i) {
    const Box line = box.take_top(height);
    if (rows[i].run == scene.focus().index && scene.shown.size() > 1) {
      paint.fill(line, paint.colors.accent.with_alpha(40), paint.px(2));
    }
    paint.area({line, Area::Kind::overview_row, rows[i].run, rows[i].rank});
    draw_overview_row(scene, rows[i], columns_of_line(paint, line), most);
  }
}

}  // namespace shardlens::viewer
