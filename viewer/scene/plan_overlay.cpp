// Draws a plan over a measured run: its outline over the plot, and under the plot a strip of the
// measured bytes minus the planned.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "base/units.h"
#include "viewer/model/compare.h"
#include "viewer/scene/parts.h"

namespace shardlens::viewer {

namespace {

using Totals = std::vector<std::optional<int64_t>>;

/// The fraction of the y axis below which residuals are not magnified to fill the strip.
constexpr double kLeastReach = 1e-3;
constexpr std::string_view kExact = "as planned, to the byte";

Totals plan_totals(const Scene& scene, const ShownRun& one, int width) {
  return totals_of(joined_columns(*one.plan_warp, one.run->plan->lane, scene.view, width),
                   scene.state().hidden_categories);
}

Totals residual_of(const Scene& scene, const ShownRun& one, int width) {
  Totals residual = totals_of(columns_of(*one.warp, one.lane->lane, scene.view, width),
                              scene.state().hidden_categories);
  const Totals planned = plan_totals(scene, one, width);
  for (size_t i = 0; i < residual.size(); ++i) {
    if (!planned[i]) residual[i].reset();
    if (residual[i]) *residual[i] -= *planned[i];
  }
  return residual;
}

struct Reach {
  int64_t more = 0;  // the most that was measured above the plan
  int64_t less = 0;
  bool is_known = false;
};

Reach residual_reach(const Totals& residual) {
  Reach reach;
  for (const auto& bytes : residual) {
    if (!bytes) continue;
    reach.is_known = true;
    reach.more = std::max(reach.more, *bytes);
    reach.less = std::max(reach.less, -*bytes);
  }
  return reach;
}

std::string words_of_reach(const Reach& reach) {
  if (!reach.is_known) return "the plan has nothing here";
  if (reach.more == 0 && reach.less == 0) return std::string(kExact);
  if (reach.less == 0) return fmt::format("at most {} more", bytes_text(reach.more));
  if (reach.more == 0) return fmt::format("at most {} less", bytes_text(reach.less));
  return fmt::format("-{} to +{}", bytes_text(reach.less), bytes_text(reach.more));
}

/// Draws the strip; its caption has the residual in words.
Image residual_strip(const Scene& scene, const ShownRun& one, int width, int height) {
  const Totals residual = residual_of(scene, one, width);
  const Reach reach = residual_reach(residual);
  const double least = kLeastReach * y_axis_of(scene.state(), scene.shown, one).top;
  const auto most = static_cast<double>(std::max(reach.more, reach.less));
  Image image = residual_image(
      residual,
      {.height = height, .top_bytes = std::max({1.0, least, most}), .theme = scene.state().theme});
  image.caption = words_of_reach(reach);
  return image;
}

/// Returns the plan's peak with the measured one: "plan 99.24 MiB: measured the same".
std::string planned_peak_words(const ShownRun& one) {
  const int64_t planned = one.run->plan->lane.peak().max_bytes;
  const int64_t measured = one.lane->lane.peak().max_bytes;
  const std::string peaks =
      fmt::format("plan {}: measured {}", bytes_text(planned), change_in_words(planned, measured));
  const profiler::Judgement& judgement = one.lane->lane.info().judgement;
  if (profiler::is_whole(judgement)) return peaks;
  return fmt::format("recording {}: {}", to_string(judgement.state), peaks);
}

}  // namespace

void outline_plan(const Scene& scene, const ShownRun& one, const LaneStyle& style, Image& image) {
  if (one.plan_warp == nullptr || image.width <= 0) return;
  LaneStyle wide = style;
  wide.edge = 2 * style.edge;
  draw_outline(image, plan_totals(scene, one, image.width), wide, colors_of(style.theme).plan,
               6 * style.edge);
}

void draw_residual(Scene& scene, const ShownRun& one, const CardGeometry& card) {
  if (one.plan_warp == nullptr || card.residual.h <= 0) return;
  Painter& paint = scene.paint;
  Box box = card.residual;
  box.take_top(paint.px(3));
  paint.text_right({card.y_axis.x, box.y, card.y_axis.w - paint.px(5), paint.px(14)}, "residual",
                   paint.colors.muted, Style::small);
  const Box words = box.take_bottom(paint.px(15));
  const std::string key =
      fmt::format("{} {} {} {} {} {} {} {} {} {}", scene.in.generation, one.rank, box.h, box.w,
                  static_cast<int>(scene.state().theme), scene.state().hidden_categories,
                  static_cast<int>(scene.state().alignment), scene.state().baseline,
                  scene.view.begin, scene.view.end);
  paint.fill(box, paint.colors.plot);
  const Image& image = scene.cache.get(fmt::format("residual {}", one.index), key, [&] {
    return residual_strip(scene, one, static_cast<int>(box.w), static_cast<int>(box.h));
  });
  paint.image(box, image);
  const float middle = box.y + std::floor(box.h / 2);
  paint.line(box.x, middle, box.right(), middle, paint.colors.muted);
  paint.outline(box, paint.colors.card_edge);
  const std::string all = planned_peak_words(one) + "; " + image.caption;
  const bool fits = paint.width(Style::small, all) <= words.w;
  paint.text(words, fits ? all : image.caption,
             image.caption == kExact ? paint.colors.less : paint.colors.muted, Style::small);
}

}  // namespace shardlens::viewer
