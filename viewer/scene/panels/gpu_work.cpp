// Draws below a plot what ran on each stream of the GPU, if a trace of the run is open.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "viewer/model/trace/joined_trace.h"
#include "viewer/scene/parts.h"

namespace shardlens::viewer {

namespace {

/// Returns the colour of a column: that of the kind that ran longest, the paler the less ran.
Color color_of_column(const std::array<double, kWorkKinds>& busy, double length, Theme theme) {
  constexpr double kLeastStrength = 90;  // of 255: what is short must be seen, too
  const auto most = std::ranges::max_element(busy);
  if (*most <= 0) return colors_of(theme).plot;
  const double share = std::min(1.0, std::accumulate(busy.begin(), busy.end(), 0.0) / length);
  const auto kind = static_cast<profiler::GpuWork>(most - busy.begin());
  const Color on = color_of(kind, theme);
  const Color ground = colors_of(theme).plot;
  const double strength = (kLeastStrength + (255 - kLeastStrength) * share) / 255;
  const auto mix = [&](uint8_t a, uint8_t b) {
    return static_cast<uint8_t>(b + (a - b) * strength);
  };
  return {mix(on.r, ground.r), mix(on.g, ground.g), mix(on.b, ground.b), 255};
}

Image work_image(const Scene& scene, const ShownRun& one, int width) {
  const JoinedTrace& work = *one.lane->work;
  const auto rows = static_cast<int>(work.rows());
  Image image{.width = width,
              .height = rows,
              .pixels = std::vector<uint32_t>(static_cast<size_t>(rows * width)),
              .caption = {},
              .version = 0,
              .is_bottom_up = false};
  for (int x = 0; x < width; ++x) {
    const auto begin_ns = time_at(scene, one, static_cast<double>(x) / width);
    const auto end_ns = time_at(scene, one, static_cast<double>(x + 1) / width);
    if (!begin_ns || !end_ns || *end_ns <= *begin_ns) continue;
    for (int row = 0; row < rows; ++row) {
      const auto busy = work.busy_between(static_cast<size_t>(row), *begin_ns, *end_ns);
      image.pixels[static_cast<size_t>(row * width + x)] = packed(
          color_of_column(busy, static_cast<double>(*end_ns - *begin_ns), scene.state().theme));
    }
  }
  return image;
}

}  // namespace

std::optional<int64_t> time_at(const Scene& scene, const ShownRun& one, double part) {
  const auto position = one.warp->position_at(scene.view.begin + scene.view.length() * part);
  if (!position) return std::nullopt;
  const auto whole = static_cast<int64_t>(*position);
  return one.warp->is_by_change() ? one.lane->lane.time_of(whole) : whole;
}

void draw_gpu_work(Scene& scene, const ShownRun& one, const CardGeometry& card) {
  if (one.lane->work == nullptr) return;
  Painter& paint = scene.paint;
  const JoinedTrace& work = *one.lane->work;
  Box box = card.work;
  box.take_top(paint.px(2));
  const int width = static_cast<int>(box.w);
  paint.fill(box, paint.colors.plot);
  paint.image(box,
              scene.cache.get(fmt::format("work {}", one.index), key_of_rows(scene, one, width),
                              [&] { return work_image(scene, one, width); }));
  paint.area({box, Area::Kind::gpu_work, one.index, one.rank});
  const float height = box.h / static_cast<float>(work.rows());
  const float axis = card.y_axis.w - paint.px(5);
  for (size_t row = 0; row < work.rows(); ++row) {
    const float top = box.y + static_cast<float>(row) * height;
    if (row > 0) paint.line(box.x, top, box.right(), top, paint.colors.card);
    const bool is_last = row + 1 == work.rows() && work.left_out() > 0;
    const std::string more = is_last ? fmt::format(" +{}", work.left_out()) : "";
    const auto names = work.row_names(row);
    const auto fits = [&](const std::string& name) {
      return paint.width(Style::small, name + more) <= axis;
    };
    const auto name = std::ranges::find_if(names, fits);
    paint.text_right({card.y_axis.x, top, axis, height},
                     (name == names.end() ? names.back() : *name) + more, paint.colors.muted,
                     Style::small);
  }
}

}  // namespace shardlens::viewer
