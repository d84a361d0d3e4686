// Draws under a plot a bar for every step and phase, as high as its peak, and the actions that ran:
// computation above, communication below.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "viewer/scene/parts.h"

namespace shardlens::viewer {

namespace {

constexpr size_t kMostSpans = 4;  // per column in view: of more, only some are sampled
constexpr std::ptrdiff_t kMostSamples = 8;
constexpr size_t kMostNamed = 2000;  // in view: with more, none is named

std::string stretch_name(const Stretch& stretch) {
  if (stretch.number >= 0) return fmt::format("step {}", stretch.number);
  return std::string(to_string(stretch.phase));
}

double x_of_time(const ShownRun& one, int64_t time_ns) {
  if (!one.warp->is_by_change()) return one.warp->x_of(static_cast<double>(time_ns));
  return one.warp->x_of(
      static_cast<double>(one.lane->lane.change_at(static_cast<double>(time_ns))));
}

/// Returns the first of `at` to `end` whose key is `least` or more, as std::lower_bound does, but
/// searches near `at` first: from one column of pixels to the next it is not far.
template <class Iterator, class Least, class KeyOf>
Iterator first_from(Iterator at, Iterator end, Least least, KeyOf key_of) {
  std::ptrdiff_t step = 1;
  while (step <= end - at && key_of(at[step - 1]) < least) {
    at += step;
    step *= 2;
  }
  return std::ranges::lower_bound(at, at + std::min(step, end - at), least, {}, key_of);
}

/// Returns the indices of the spans that may be in view, as first and end.
std::pair<size_t, size_t> spans_in_view(const Scene& scene, const ShownRun& one) {
  const auto& spans = one.lane->lane.arrays().spans;
  const auto x = [&](const Span& span) { return x_of_time(one, span.begin_ns); };
  auto first = std::ranges::lower_bound(spans, scene.view.begin, {}, x);
  while (first != spans.begin()) {
    --first;
    if (first->depth == 0) break;
  }
  const auto last = std::ranges::upper_bound(spans, scene.view.end, {}, x);
  return {static_cast<size_t>(first - spans.begin()),
          std::max(static_cast<size_t>(first - spans.begin()),
                   static_cast<size_t>(last - spans.begin()))};
}

/// Draws the actions into rows of pixels, the lower one for communication if there is any: each
/// column shows the action that took most of its time.
class RibbonImage {
 public:
  RibbonImage(const Scene& scene, const ShownRun& one, int width)
      : scene_(scene), one_(one), width_(width) {
    const int rows = one.lane->communicates() ? 2 : 1;
    shares_.resize(static_cast<size_t>(rows * width));
    image_ = {.width = width,
              .height = rows,
              .pixels = std::vector<uint32_t>(shares_.size()),
              .caption = {},
              .version = 0,
              .is_bottom_up = false};
  }

  Image draw() {
    const auto [first, last] = spans_in_view(scene_, one_);
    if (last - first > kMostSpans * static_cast<size_t>(width_)) {
      for (int x = 0; x < width_; ++x) sample(x);
    } else {
      for (size_t i = first; i < last; ++i) add(one_.lane->lane.arrays().spans[i]);
    }
    return std::move(image_);
  }

 private:
  void add(const Span& span) {
    const double scale = width_ / scene_.view.length();
    const double begin = (x_of_time(one_, span.begin_ns) - scene_.view.begin) * scale;
    const double end =
        std::max(begin + 1e-3, (x_of_time(one_, span.end_ns) - scene_.view.begin) * scale);
    const int last = std::min(width_ - 1, static_cast<int>(std::floor(end)));
    for (int x = std::max(0, static_cast<int>(std::floor(begin))); x <= last; ++x) {
      put(span, x, std::min<double>(x + 1, end) - std::max<double>(x, begin));
    }
  }

  /// Samples the spans that run when a column begins, and some of those that begin in it.
  void sample(int x) {
    const auto begin_ns = time_at(scene_, one_, static_cast<double>(x) / width_);
    const auto end_ns = time_at(scene_, one_, static_cast<double>(x + 1) / width_);
    if (!begin_ns || !end_ns) return;
    const auto& spans = one_.lane->lane.arrays().spans;
    const auto begin_of = [](const Span& span) { return span.begin_ns; };
    const auto begun = first_from(spans.begin() + next_, spans.end(), *begin_ns, begin_of);
    for (auto at = begun; at != spans.begin();) {
      --at;
      put(*at, x, overlap(*at, *begin_ns, *end_ns));
      if (at->depth == 0) break;
    }
    const auto last = first_from(begun, spans.end(), *end_ns, begin_of);
    next_ = last - spans.begin();
    const auto stride = std::max<std::ptrdiff_t>(1, (last - begun) / kMostSamples);
    for (auto at = begun; at < last;
         at += std::min(stride, std::max<std::ptrdiff_t>(1, last - at))) {
      put(*at, x, overlap(*at, *begin_ns, *end_ns));
    }
  }
  /// Returns the time that a span shares with a column; a span that begins in the column counts,
  /// however short it is.
  static double overlap(const Span& span, int64_t begin_ns, int64_t end_ns) {
    const int64_t both = std::min(span.end_ns, end_ns) - std::max(span.begin_ns, begin_ns);
    return static_cast<double>(both) + (span.begin_ns >= begin_ns ? 0.5 : 0);
  }
  void put(const Span& span, int x, double share) {
    const Stretch& stretch = one_.lane->lane.arrays().stretches[static_cast<size_t>(span.stretch)];
    const PassPart part = one_.lane->names.part_of(stretch.phase, span.action);
    const size_t row = is_communication(part) ? 1 : 0;
    const size_t at = row * static_cast<size_t>(width_) + static_cast<size_t>(x);
    if (share <= shares_[at]) return;
    shares_[at] = share;
    image_.pixels[at] = packed(color_of(part, scene_.state().theme));
  }

  const Scene& scene_;
  const ShownRun& one_;
  int width_;
  std::vector<double> shares_;
  std::ptrdiff_t next_ = 0;  // first span that begins after the last sampled column
  Image image_;
};

/// Draws the names of the spans that are wide enough. Where spans overlap, the first has its name.
void draw_names(Scene& scene, const ShownRun& one, const Box& box) {
  const auto [first, last] = spans_in_view(scene, one);
  if (last - first > kMostNamed) return;
  Painter& paint = scene.paint;
  const auto& lane = one.lane->lane;
  std::array<float, 2> named_to = {box.x, box.x};  // in each row
  for (size_t i = first; i < last; ++i) {
    const Span& span = lane.arrays().spans[i];
    const Stretch& stretch = lane.arrays().stretches[static_cast<size_t>(span.stretch)];
    const float begin = std::max(box.x, scene.x_of(box, x_of_time(one, span.begin_ns)));
    const float end = std::min(box.right(), scene.x_of(box, x_of_time(one, span.end_ns)));
    if (end - begin < paint.px(18)) continue;
    const ActionName name = one.lane->names.name_of(stretch.phase, span.action);
    const float row = one.lane->communicates() ? box.h / 2 : box.h;
    const size_t lower = is_communication(name.part) ? 1 : 0;
    const Box place{begin + paint.px(2), box.y + static_cast<float>(lower) * row,
                    end - begin - paint.px(4), row};
    const std::string& text = name.unit.empty() ? name.text : name.unit;
    const float width = paint.width(Style::small, text);
    if (width > place.w || place.x < named_to[lower]) continue;
    paint.text(place, text, paint.colors.text, Style::small);
    named_to[lower] = place.x + width;
  }
}

/// Draws the bar of a stretch; `part` is its fraction of the highest peak.
void draw_bar(Painter& paint, const Stretch& stretch, const Box& place, float part) {
  const float height = std::max(1.F, part * place.h);
  const bool is_step = stretch.number >= 0;
  const Color color = is_step ? paint.colors.accent.with_alpha(70) : paint.colors.grid;
  paint.fill({place.x, place.bottom() - height, std::max(1.F, place.w - 1), height}, color);
  std::string name = stretch_name(stretch);
  if (is_step && paint.width(Style::small, name) + paint.px(4) > place.w) {
    name = std::to_string(stretch.number);
  }
  if (paint.width(Style::small, name) + 2 > place.w) return;
  paint.text_middle(place, name, paint.colors.text, Style::small);
}

}  // namespace

const Span* ribbon_span(const Lane& lane, const ActionNames& names, int64_t time_ns,
                        bool is_lower_row) {
  const auto& spans = lane.arrays().spans;
  const auto begin_of = [](const Span& span) { return span.begin_ns; };
  for (auto at = std::ranges::upper_bound(spans, time_ns, {}, begin_of); at != spans.begin();) {
    --at;
    const Stretch& stretch = lane.arrays().stretches[static_cast<size_t>(at->stretch)];
    const bool is_lower = is_communication(names.part_of(stretch.phase, at->action));
    if (at->end_ns >= time_ns && is_lower == is_lower_row) return &*at;
    if (at->depth == 0 && at->end_ns < time_ns) return nullptr;
  }
  return nullptr;
}

std::string key_of_rows(const Scene& scene, const ShownRun& one, int width) {
  return fmt::format("{} {} {} {} {} {} {} {}", scene.in.generation, one.rank, width,
                     static_cast<int>(scene.state().theme),
                     static_cast<int>(scene.state().alignment), scene.state().baseline,
                     scene.view.begin, scene.view.end);
}

void draw_ribbon(Scene& scene, const ShownRun& one, const CardGeometry& card) {
  Painter& paint = scene.paint;
  Box box = card.ribbon;
  box.take_top(paint.px(2));
  const int width = static_cast<int>(box.w);
  paint.fill(box, paint.colors.plot);
  paint.image(box,
              scene.cache.get(fmt::format("ribbon {}", one.index), key_of_rows(scene, one, width),
                              [&] { return RibbonImage(scene, one, width).draw(); }));
  paint.area({box, Area::Kind::ribbon, one.index, one.rank});
  draw_names(scene, one, box);
  const bool has_lower = one.lane->communicates();
  const float axis = card.y_axis.w - paint.px(5);
  const float row = has_lower ? box.h / 2 : box.h;
  paint.text_right({card.y_axis.x, box.y, axis, row},
                   one.lane->names.are_of_program() ? "phase" : "compute", paint.colors.muted,
                   Style::small);
  if (!has_lower) return;
  paint.line(box.x, box.y + row, box.right(), box.y + row, paint.colors.card);
  paint.text_right({card.y_axis.x, box.y + row, axis, row}, "comm.", paint.colors.muted,
                   Style::small);
}

void draw_bars(Scene& scene, const ShownRun& one, const CardGeometry& card) {
  Painter& paint = scene.paint;
  Box box = card.bars;
  box.take_top(paint.px(2));
  paint.fill(box, paint.colors.plot);
  const auto& lane = one.lane->lane;
  const auto peak = static_cast<double>(std::max<int64_t>(1, lane.peak().max_bytes));
  const auto& all = lane.arrays().stretches;
  const auto end_x = [&](const Stretch& stretch) { return x_of_time(one, stretch.end_ns); };
  auto at = std::ranges::lower_bound(all, scene.view.begin, {}, end_x);
  while (at != all.end()) {
    const Stretch& stretch = *at;
    if (x_of_time(one, stretch.begin_ns) > scene.view.end) break;
    const float begin = std::max(box.x, scene.x_of(box, x_of_time(one, stretch.begin_ns)));
    const float end = std::min(box.right(), scene.x_of(box, end_x(stretch)));
    draw_bar(paint, stretch, {begin, box.y, end - begin, box.h},
             static_cast<float>(static_cast<double>(stretch.peak_bytes) / peak));
    // If many steps share one pixel, the first is drawn; the plot shows the highest.
    ++at;
    if (end - begin >= 1) continue;
    const double next =
        scene.view.begin + scene.view.length() * static_cast<double>((begin + 1 - box.x) / box.w);
    at = first_from(at, all.end(), next, end_x);
  }
  const float axis = card.y_axis.w - paint.px(5);
  paint.text_right({card.y_axis.x, box.y, axis, box.h}, "steps", paint.colors.muted, Style::small);
}

}  // namespace shardlens::viewer
