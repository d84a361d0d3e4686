#include "viewer/scene/scene.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "profiler/report/category_name.h"
#include "viewer/scene/parts.h"

namespace shardlens::viewer {

namespace {

GeometryInput geometry_input(const SceneInput& input, size_t rows) {
  return {.width = input.width,
          .height = input.height,
          .top = input.top,
          .scale = input.scale * input.state.zoom,
          .runs = input.runs.size(),
          .table_rows = rows,
          .messages = std::min<size_t>(3, input.messages.size()),
          .has_plans =
              std::ranges::any_of(input.runs, [](const Run& run) { return run.plan.has_value(); })};
}

void draw_nothing(Scene& scene) {
  const Box all{0, 0, static_cast<float>(scene.in.width), static_cast<float>(scene.in.height)};
  scene.paint.text_middle(all, "No recording is open: drop a run's folder here, or press Ctrl+O",
                          scene.paint.colors.muted, Style::title);
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

const profiler::Matching& ImageCache::matching(const std::string& key,
                                               const std::function<profiler::Matching()>& make) {
  if (matching_key_ != key) {
    matching_ = make();
    matching_key_ = key;
  }
  return matching_;
}

void ImageCache::end_picture() {
  std::erase_if(entries_, [](const auto& entry) { return !entry.second->used; });
  for (auto& [slot, entry] : entries_) entry->used = false;
}

std::vector<Shown> shown_of(const SceneInput& input) {
  std::vector<Shown> all;
  const bool at_cursor = input.state.at == At::cursor && input.state.cursor;
  for (size_t i = 0; i < input.runs.size(); ++i) {
    Shown one{.index = i, .run = &input.runs[i], .rank = shown_rank(input.runs[i], input.state)};
    one.lane = &one.run->ranks[one.rank];
    one.warp = &input.warps[i][one.rank];
    if (one.run->plan) one.plan_warp = &input.plan_warps[i];
    const Lane& lane = one.lane->lane;
    one.change = lane.peak().max_change;
    if (at_cursor) {
      one.change = change_at(*one.warp, lane, *input.state.cursor).value_or(kBeforeAll);
    }
    one.bytes = lane.pyramid().after(one.change);
    one.total = sum_of(one.bytes);
    const bool is_on_device = lane.info().space == profiler::Space::device;
    for (const ReservedSample& sample : lane.arrays().reserved) {
      if (!is_on_device) break;
      one.reserved_peak = std::max(one.reserved_peak, sample.bytes);
    }
    all.push_back(one);
  }
  return all;
}

bool have_shards(const std::vector<Shown>& shown) {
  return std::ranges::any_of(
      shown, [](const Shown& one) { return profiler::has_shards(one.lane->lane.info().header); });
}

std::vector<Category> used_categories(const std::vector<Shown>& shown) {
  std::vector<Category> used;
  const auto& order = stacking_order();
  for (size_t i = order.size(); i-- > 0;) {
    const auto c = static_cast<size_t>(order[i]);
    const bool is_used = std::ranges::any_of(shown, [&](const Shown& one) {
      return one.bytes[c] > 0 || one.lane->lane.peak().at_max[c] > 0;
    });
    if (is_used) used.push_back(order[i]);
  }
  return used;
}

std::string moment_text(const RankLane& rank, int64_t change) {
  const Lane& lane = rank.lane;
  if (change < 0) return "before anything was allocated";
  const int64_t time_ns = lane.time_of(change);
  const Stretch* const stretch = lane.stretch_of_change(change);
  std::string text;
  if (stretch != nullptr && stretch->number >= 0) {
    text = fmt::format("step {}, ", stretch->number);
  } else if (stretch != nullptr) {
    text = fmt::format("{}, ", profiler::kPhaseNames[static_cast<size_t>(stretch->phase)]);
  }
  if (const Span* const span = lane.span_at(time_ns); span != nullptr && stretch != nullptr) {
    text += rank.names.name_of(stretch->phase, span->action).text + ", ";
  }
  return text + fmt::format("at {:.3f} s", static_cast<double>(time_ns) / 1e9);
}

Picture make_picture(const SceneInput& input, const Fonts& fonts, ImageCache& cache) {
  Picture picture{.width = input.width, .height = input.height, .items = {}, .areas = {}};
  const Colors& colors = colors_of(input.state.theme);
  Painter paint(picture, fonts, colors, input.scale * input.state.zoom);
  std::vector<Shown> shown = shown_of(input);
  const size_t rows = table_rows(shown);
  Scene scene{.in = input,
              .paint = paint,
              .cache = cache,
              .geometry = geometry_of(geometry_input(input, rows), input.state),
              .shown = std::move(shown),
              .view = view_of(input.state, input.facts.extent),
              .difference_reach = {}};
  paint.fill({0, 0, static_cast<float>(input.width), static_cast<float>(input.height)},
             colors.background);
  draw_messages(scene);
  if (scene.shown.empty()) {
    draw_nothing(scene);
    cache.end_picture();
    return picture;
  }
  draw_header(scene);
  draw_legend(scene);
  draw_minimap(scene);
  for (size_t i = 0; i < scene.geometry.cards.size(); ++i) {
    const bool is_overlay = input.state.layout == Layout::overlay;
    draw_card(scene, is_overlay ? scene.baseline() : scene.shown[i], scene.geometry.cards[i]);
  }
  draw_table(scene);
  draw_what_if(scene);
  draw_alive(scene);
  cache.end_picture();
  return picture;
}

int plot_columns(const SceneInput& input) {
  const Geometry geometry = geometry_of(geometry_input(input, kCategories), input.state);
  return geometry.cards.empty() ? 1 : std::max(1, static_cast<int>(geometry.cards[0].plot.w));
}

}  // namespace shardlens::viewer
