#include "viewer/scene/scene.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "profiler/recording/profile.h"
#include "profiler/recording/python_rules.h"
#include "viewer/scene/parts.h"
#include "viewer/state/lanes.h"

namespace shardlens::viewer {

namespace {

/// Returns the runs that may be drawn: those in the lines that fit beside a long table, and in the
/// lines next to these.
std::vector<size_t> runs_in_view(const SceneInput& input) {
  std::vector<size_t> runs = unfolded_runs(input.state, input.facts);
  if (input.state.layout == LaneLayout::overlay) return runs;
  const Geometry geometry = place_parts(input, kCategories);
  const size_t line = geometry.lane_columns;
  const size_t first = geometry.first_lane - std::min(geometry.first_lane, line);
  const size_t end = geometry.first_lane + (geometry.lane_lines + 1) * line;
  runs.resize(std::min(runs.size(), end));
  runs.erase(runs.begin(),
             runs.begin() + static_cast<std::ptrdiff_t>(std::min(first, runs.size())));
  return runs;
}

void draw_nothing(Scene& scene) {
  Box all{0, 0, static_cast<float>(scene.in.width), static_cast<float>(scene.in.height)};
  scene.paint.text_middle(all, "No run is open: drop a run's folder here, or press Ctrl+O",
                          scene.paint.colors.muted, Style::title);
  all.take_top(all.h / 2 + scene.paint.px(20));
  for (const std::string& message : scene.in.messages) {
    scene.paint.text_middle(all.take_top(scene.paint.px(20)), message, scene.paint.colors.warning,
                            Style::body);
  }
}

}  // namespace

const Image& ImageCache::get(const std::string& slot, const std::string& key,
                             const std::function<Image()>& raster) {
  auto& entry = entries_[slot];
  if (!entry) entry = std::make_unique<Entry>();
  entry->used = true;
  if (entry->key != key || entry->image.version == 0) {
    entry->image = raster();
    entry->image.version = ++version_;
    entry->key = key;
    ++rastered_;
  }
  return entry->image;
}

const DrawnColumns& ImageCache::columns(const std::string& slot, const std::string& key,
                                        const std::function<Columns()>& make) {
  ColumnsEntry& entry = columns_[slot];
  entry.used = true;
  if (entry.key == key) return entry.drawn;
  entry.key = key;
  entry.drawn = {.cells = make()};
  for (const std::optional<Extent>& cell : entry.drawn.cells) {
    if (cell) entry.drawn.most_bytes = std::max(entry.drawn.most_bytes, cell->max_bytes);
    for (size_t c = 0; cell && c < kCategories; ++c) {
      entry.drawn.most[c] = std::max(entry.drawn.most[c], cell->at_max[c]);
    }
  }
  return entry.drawn;
}

void ImageCache::end_picture() {
  std::erase_if(entries_, [](const auto& entry) { return !entry.second->used; });
  for (auto& [slot, entry] : entries_) entry->used = false;
  std::erase_if(columns_, [](const auto& entry) { return !entry.second.used; });
  for (auto& [slot, entry] : columns_) entry.used = false;
}

int64_t SearchHits::alive_bytes(const Lane& lane, int64_t change) const {
  int64_t alive = 0;
  for (const Hit& hit : hits) {
    if (lane.arrays().blocks[hit.block].is_alive_after(change)) alive += hit.bytes;
  }
  return alive;
}

LaneLists lane_lists(const SceneInput& input) {
  LaneLists lists;
  const Facts& facts = input.facts;
  for (const size_t run : facts.order) {
    const bool is_base = facts.bases[run] == run;
    const bool is_over_base = input.state.layout == LaneLayout::overlay && !is_base;
    const bool folds = is_folded(input.state.lanes, facts.keys[run]);
    if (folds && (is_over_base || input.state.layout != LaneLayout::overlay)) {
      lists.folded.push_back(run);
    } else if (!is_over_base) {
      lists.cards.push_back(run);
    }
  }
  return lists;
}

namespace {

/// True if a run has actions, which the ribbon shows: recordings that are older than parts of
/// programs have none, nor have snapshots.
bool has_actions(const Run& run) {
  return std::ranges::any_of(
      run.ranks, [](const RankLane& rank) { return !rank.lane.arrays().spans.empty(); });
}

/// Returns the most rows of streams that any rank has.
size_t most_work_rows(const std::vector<Run>& runs) {
  size_t most = 0;
  for (const Run& run : runs) {
    for (const RankLane& rank : run.ranks) {
      if (rank.work) most = std::max(most, rank.work->rows());
    }
  }
  return most;
}

}  // namespace

Geometry place_parts(const SceneInput& input, size_t rows, size_t legend_lines) {
  const LaneLists lists = lane_lists(input);
  const GeometryInput sizes{.width = input.width,
                            .height = input.height,
                            .top = input.top,
                            .scale = input.scale * input.state.zoom,
                            .runs = input.runs.size(),
                            .lanes = lists.cards.size(),
                            .folded = lists.folded.size(),
                            .table_rows = rows,
                            .details_rows = input.facts.details_rows,
                            .messages = std::min<size_t>(3, input.messages.size()),
                            .legend_lines = legend_lines,
                            .is_figure = input.is_figure,
                            .has_plans = std::ranges::any_of(
                                input.runs, [](const Run& run) { return run.plan.has_value(); }),
                            .has_actions = std::ranges::any_of(input.runs, has_actions),
                            .work_rows = most_work_rows(input.runs)};
  return geometry_of(sizes, input.state);
}

std::vector<ShownRun> shown_of(const SceneInput& input) {
  std::vector<ShownRun> all;
  const bool at_cursor = input.state.at == TableMoment::cursor && input.state.cursor;
  for (size_t i = 0; i < input.runs.size(); ++i) {
    ShownRun one{.index = i, .run = &input.runs[i], .rank = shown_rank(input.runs[i], input.state)};
    one.base = input.facts.bases[i];
    one.has_others = std::ranges::count(input.facts.bases, one.base) > 1;
    one.is_folded = is_folded(input.state.lanes, input.facts.keys[i]);
    one.lane = &one.run->ranks[one.rank];
    one.warp = &input.warps[i][one.rank];
    if (one.run->plan) one.plan_warp = &input.plan_warps[i];
    const Lane& lane = one.lane->lane;
    one.change = lane.peak().max_change;
    if (at_cursor) {
      one.change = change_at(*one.warp, lane, *input.state.cursor).value_or(kBeforeAll);
    }
    one.time_ns = lane.time_of(one.change);
    if (at_cursor && !one.warp->is_by_change()) {
      const auto position = one.warp->position_at(*input.state.cursor);
      one.time_ns = static_cast<int64_t>(position.value_or(0));
    }
    one.bytes = lane.pyramid().bytes_after(one.change);
    one.total = sum_of(one.bytes);
    const bool is_on_device = lane.info().space == profiler::Space::device;
    one.reserved_peak = is_on_device ? lane.reserved_peak() : 0;
    all.push_back(one);
  }
  return all;
}

const DrawnColumns& drawn_columns(const SceneInput& input, ImageCache& cache, size_t run,
                                  size_t rank, int width) {
  const Range view = view_of(input.state, input.facts.extent);
  const std::string key = fmt::format("{} {} {} {} {} {}", input.generation, width,
                                      static_cast<int>(input.state.alignment), input.state.baseline,
                                      view.begin, view.end);
  return cache.columns(fmt::format("{} {}", run, rank), key, [&] {
    return columns_of(input.warps[run][rank], input.runs[run].ranks[rank].lane, view, width);
  });
}

namespace {

/// Returns the most bytes that any column has of the shown categories.
int64_t most_shown(const ViewState& state, const DrawnColumns& drawn) {
  if (state.hidden_categories == 0) return drawn.most_bytes;
  int64_t most = 0;
  for (const auto& bytes : totals_of(drawn.cells, state.hidden_categories)) {
    most = std::max(most, bytes.value_or(0));
  }
  return most;
}

}  // namespace

void find_drawn(const SceneInput& input, ImageCache& cache, std::vector<ShownRun>& shown) {
  const int width = plot_columns(input);
  const bool draws_one = input.state.ranks == Ranks::one;
  for (const size_t run : runs_in_view(input)) {
    ShownRun& one = shown[run];
    for (size_t rank = 0; rank < one.run->ranks.size(); ++rank) {
      if (draws_one && rank != one.rank) continue;
      const DrawnColumns& drawn = drawn_columns(input, cache, one.index, rank, width);
      for (size_t c = 0; c < kCategories; ++c) {
        one.drawn[c] = std::max(one.drawn[c], drawn.most[c]);
      }
      one.drawn_most = std::max(one.drawn_most, most_shown(input.state, drawn));
    }
  }
}

bool have_shards(const std::vector<ShownRun>& shown) {
  return std::ranges::any_of(shown, [](const ShownRun& one) {
    return profiler::has_shards(one.lane->lane.info().header);
  });
}

std::vector<Category> used_categories(const std::vector<ShownRun>& shown) {
  std::vector<Category> used;
  const auto& order = stacking_order();
  for (size_t i = order.size(); i-- > 0;) {
    const auto c = static_cast<size_t>(order[i]);
    const bool is_used = std::ranges::any_of(
        shown, [&](const ShownRun& one) { return one.bytes[c] > 0 || one.drawn[c] > 0; });
    if (is_used) used.push_back(order[i]);
  }
  return used;
}

int64_t shown_bytes(const ViewState& state, const CategoryBytes& bytes) {
  int64_t sum = 0;
  for (size_t c = 0; c < kCategories; ++c) {
    if (state.shows(static_cast<Category>(c))) sum += bytes[c];
  }
  return sum;
}

int64_t most_bytes(const std::vector<ShownRun>& shown, Category category) {
  const auto c = static_cast<size_t>(category);
  int64_t most = 0;
  for (const ShownRun& one : shown) most = std::max({most, one.bytes[c], one.drawn[c]});
  return most;
}

const Color& color_of_change(const Colors& colors, int64_t growth) {
  return growth > 0 ? colors.more : growth < 0 ? colors.less : colors.muted;
}

bool is_decisive(Category category) {
  return category == Category::parameter_shard || category == Category::optimizer_state;
}

std::string clock_text(const Lane& lane, int64_t change, int digits) {
  return clock_text_at(lane, lane.time_of(change), digits);
}

std::string clock_text_at(const Lane& lane, int64_t time_ns, int digits) {
  constexpr double kNsPerSecond = 1e9;
  const Stretch* const first = lane.first_step();
  if (first == nullptr) {
    return fmt::format("at {:.{}f} s", static_cast<double>(time_ns) / kNsPerSecond, digits);
  }
  const auto from_ns = static_cast<double>(time_ns - first->begin_ns);
  return fmt::format("{:.{}f} s from step {}", from_ns / kNsPerSecond, digits, first->number);
}

std::string stretch_text(const Lane& lane, int64_t change) {
  const Stretch* const stretch = lane.stretch_of_change(change);
  if (stretch == nullptr) return "";
  if (stretch->number >= 0) return fmt::format("step {}", stretch->number);
  return std::string(to_string(stretch->phase));
}

namespace {

/// Returns the class of the program's innermost module whose forward made a label; empty if there
/// is none.
std::string_view class_of(const Lane& lane, uint32_t label) {
  constexpr std::string_view kForward = ".forward";
  const profiler::Stacks& stacks = lane.info().stacks;
  uint32_t at = stacks.innermost_frame(label);
  while (at != 0 && at < stacks.frames.size()) {
    const profiler::StackFrame& frame = stacks.frames[at];
    const std::string_view function = lane.label(frame.function);
    if (function.ends_with(kForward) && profiler::is_of_program(lane.label(frame.file))) {
      return function.substr(0, function.size() - kForward.size());
    }
    at = frame.caller < at ? frame.caller : 0;
  }
  return "";
}

/// Returns the module that makes an allocation, "layers.11.mlp", or else what a change allocates or
/// frees, "layers.11.mlp.up.weight", or else the class of the module that made it; empty if none is
/// known.
std::string_view subject_of_change(const Lane& lane, int64_t change) {
  if (const std::string_view module = lane.module_of(change); !module.empty()) return module;
  const uint32_t block = block_of(lane.arrays().words[static_cast<size_t>(change)]);
  const std::string_view name = lane.name(block);
  return name.empty() ? class_of(lane, lane.arrays().blocks[block].label) : name;
}

}  // namespace

std::string action_text(const RankLane& rank, int64_t change) {
  const int64_t time_ns = rank.lane.time_of(change);
  // The part of a program in which it communicates says more than that it does.
  const Span* const part =
      rank.names.are_of_program() ? ribbon_span(rank.lane, rank.names, time_ns, false) : nullptr;
  const Span* const span = part != nullptr ? part : rank.lane.span_at(time_ns);
  const Stretch* const stretch = rank.lane.stretch_of_change(change);
  if (span == nullptr || stretch == nullptr) return "";
  const std::string name = rank.names.name_of(stretch->phase, span->action).text;
  const std::string_view subject = part == nullptr ? "" : subject_of_change(rank.lane, change);
  return subject.empty() ? name : fmt::format("{} of {}", name, subject);
}

std::string moment_text(const RankLane& rank, int64_t change) {
  if (change < 0) return "before anything was allocated";
  std::string text;
  for (const std::string& part : {stretch_text(rank.lane, change), action_text(rank, change)}) {
    if (!part.empty()) text += part + ", ";
  }
  return text + clock_text(rank.lane, change);
}

std::string failure_text(const RankLane& rank, const FailedRequest& failure) {
  const Lane& lane = rank.lane;
  const std::string stretch = stretch_text(lane, failure.change - 1);
  const std::string_view who = lane.label(failure.label);
  return fmt::format(
      "out of memory{}{}{} ({}): {} asked, {} free on the device; PyTorch had reserved {}, with {} "
      "in its largest free block",
      stretch.empty() ? "" : " in " + stretch, who.empty() ? "" : " at ", who,
      words_of(failure.category, profiler::has_shards(lane.info().header)),
      bytes_text(failure.asked_bytes), bytes_text(failure.free_bytes),
      bytes_text(failure.reserved_bytes), bytes_text(failure.largest_free_bytes));
}

namespace {

/// Notes which runs have a card, and which are drawn.
void choose_lanes(Scene& scene) {
  const std::vector<size_t> all = lane_lists(scene.in).cards;
  const auto first = all.begin() + static_cast<std::ptrdiff_t>(scene.geometry.first_lane);
  scene.cards.assign(first, first + static_cast<std::ptrdiff_t>(scene.geometry.cards.size()));
  const bool is_overlay = scene.state().layout == LaneLayout::overlay;
  scene.compared = is_overlay ? unfolded_runs(scene.state(), scene.in.facts) : scene.cards;
}

}  // namespace

Picture make_picture(const SceneInput& input, const Fonts& fonts, ImageCache& cache) {
  Picture picture{.width = input.width, .height = input.height, .items = {}, .areas = {}};
  const Colors& colors = colors_of(input.state.theme);
  Painter paint(picture, fonts, colors, input.scale * input.state.zoom);
  std::vector<ShownRun> shown = shown_of(input);
  find_drawn(input, cache, shown);
  const size_t rows = table_rows(shown);
  Scene scene{.in = input,
              .paint = paint,
              .cache = cache,
              .geometry = place_parts(input, rows),
              .shown = std::move(shown),
              .view = view_of(input.state, input.facts.extent)};
  scene.geometry = place_parts(input, rows, legend_lines(scene));
  choose_lanes(scene);
  paint.fill({0, 0, static_cast<float>(input.width), static_cast<float>(input.height)},
             input.is_figure ? colors.card : colors.background);
  if (!scene.shown.empty() && !input.is_figure) draw_messages(scene);
  if (scene.shown.empty()) {
    draw_nothing(scene);
    cache.end_picture();
    return picture;
  }
  if (!input.is_figure) draw_header(scene);
  draw_legend(scene);
  draw_minimap(scene);
  for (size_t i = 0; i < scene.cards.size(); ++i) {
    draw_card(scene, scene.shown[scene.cards[i]], scene.geometry.cards[i]);
  }
  if (input.is_figure) {
    cache.end_picture();
    return picture;
  }
  draw_overview(scene);
  draw_folded_lanes(scene);
  draw_lane_bar(scene);
  draw_tabs(scene);
  draw_table(scene);
  draw_tree(scene);
  draw_what_if(scene);
  draw_alive(scene);
  draw_details(scene);
  cache.end_picture();
  return picture;
}

int plot_columns(const SceneInput& input) {
  const Geometry geometry = place_parts(input, kCategories);
  return geometry.cards.empty() ? 1 : std::max(1, static_cast<int>(geometry.cards[0].plot.w));
}

}  // namespace shardlens::viewer
