// Draws the parts above the lanes: what is compared and how, the legend, messages, and the minimap.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "base/units.h"
#include "viewer/scene/parts.h"

namespace shardlens::viewer {

namespace {

std::string title_of(const Scene& scene) {
  const size_t count = scene.shown.size();
  if (count == 1) return fmt::format("Memory of {}", scene.shown.front().run->name);
  const size_t first = scene.geometry.first_lane;
  const std::string part = scene.geometry.lane_bar.w > 0
                               ? fmt::format(": {} to {}, Ctrl+G lists all", first + 1,
                                             first + scene.geometry.cards.size())
                               : "";
  return fmt::format("Memory of {} runs{}", count, part);
}

bool is_on_host(const ShownRun& one) { return one.run->space() == profiler::Space::host; }

/// True if some runs have their tensors on a device, and others on the host.
bool are_mixed(const std::vector<ShownRun>& shown) {
  return !std::ranges::all_of(shown, is_on_host) && std::ranges::any_of(shown, is_on_host);
}

std::string height_words(const Scene& scene) {
  if (scene.state().height == Height::capacity && scene.state().layout != LaneLayout::difference) {
    return "y axis up to the device's memory";
  }
  if (scene.state().height == Height::view) return "y axis fits the view";
  if (scene.state().height == Height::own) return "a y axis for each run";
  return are_mixed(scene.shown) ? "one y axis for devices, one for hosts" : "one y axis for all";
}

/// Returns the names of the runs that others are compared with.
std::string base_words(const Scene& scene) {
  std::string names;
  for (const ShownRun& one : scene.shown) {
    if (!Scene::is_baseline(one) || !one.has_others) continue;
    names += (names.empty() ? "" : " and ") + one.run->name;
  }
  return names;
}

std::string layout_words(const Scene& scene) {
  const std::string base = base_words(scene);
  if (base.empty()) return "";
  switch (scene.state().layout) {
    case LaneLayout::difference:
      return fmt::format("minus {}", base);
    case LaneLayout::overlay:
      return fmt::format("outlines over {}", base);
    case LaneLayout::rows:
    case LaneLayout::columns:
      break;
  }
  return fmt::format("compared with {}", base);
}

std::string alignment_words(Alignment alignment) {
  if (alignment == Alignment::normalised) return "aligned from beginning to end";
  return fmt::format("aligned by {}", to_string(alignment));
}

std::string sort_words(const Scene& scene) {
  const LaneSort sort = scene.state().lanes.sort;
  if (sort == LaneSort::opened || scene.shown.size() < 2) return "";
  return fmt::format("sorted by {}", to_string(sort));
}

std::string place_words(const Scene& scene) {
  if (scene.state().memory == ShownMemory::pinned) return "pinned host memory";
  if (scene.state().memory == ShownMemory::segments) return "segments reserved by the allocator";
  if (are_mixed(scene.shown)) return "device or host memory of tensors";
  const bool on_host = std::ranges::any_of(scene.shown, is_on_host);
  return on_host ? "host memory of tensors" : "device memory of tensors";
}

/// Returns the notice that a user must see once: values mean nothing on a null device.
std::string notice_of(const Scene& scene) {
  for (const ShownRun& one : scene.shown) {
    const std::string& notice = one.lane->lane.info().header.notice;
    if (!notice.empty() && !one.run->is_predicted()) return notice;
  }
  return "";
}

/// Draws a category's colour, plain or hatched as in the lanes.
void draw_swatch(Scene& scene, Category category, const Box& box) {
  if (!scene.state().panels.hatches) {
    scene.paint.fill(box, color_of(category), scene.paint.px(2));
    return;
  }
  const int side = static_cast<int>(box.w);
  const LaneStyle style{.height = side,
                        .top_bytes = 1,
                        .theme = scene.state().theme,
                        .hatch_period = hatch_period(scene),
                        .edge = 0};
  const std::string key =
      fmt::format("{} {} {}", side, static_cast<int>(style.theme), style.hatch_period);
  scene.paint.image(box,
                    scene.cache.get(fmt::format("swatch {}", static_cast<int>(category)), key, [&] {
                      Extent full;
                      full.at_max[static_cast<size_t>(category)] = 1;
                      return stack_image(Columns(static_cast<size_t>(side), full), style);
                    }));
}

float legend_width(Scene& scene, Category category) {
  const std::string words = words_of(category, have_shards(scene.shown));
  return scene.paint.px(33) + scene.paint.width(Style::small, words);
}

void draw_legend_entry(Scene& scene, Category category, Box entry) {
  Painter& paint = scene.paint;
  const std::string words = words_of(category, have_shards(scene.shown));
  const bool is_shown = scene.state().shows(category);
  const Box swatch{entry.x, entry.y + entry.h / 2 - paint.px(6), paint.px(12), paint.px(12)};
  if (is_shown) draw_swatch(scene, category, swatch);
  paint.outline(swatch, is_shown ? paint.colors.muted : paint.colors.card_edge, paint.px(2));
  Box text = entry;
  text.take_left(paint.px(17));
  paint.text(text, words, is_shown ? paint.colors.text : paint.colors.muted, Style::small);
  if (!is_shown) {
    const float middle = entry.y + entry.h / 2;
    paint.line(text.x, middle, text.x + paint.width(Style::small, words), middle,
               paint.colors.muted);
  }
  const auto index = static_cast<size_t>(category);
  paint.area({text, Area::Kind::category, 0, index});
  paint.area({{entry.x, entry.y, text.x - entry.x, entry.h}, Area::Kind::legend, 0, index});
  const auto& pick = scene.state().pick;
  if (!pick || pick->category != category) return;
  const float foot = entry.bottom() - paint.px(3);
  paint.line(text.x, foot, text.x + paint.width(Style::small, words), foot, paint.colors.accent, 2);
}

/// Returns how many lines the legend may have: a figure's must name everything, and that of a low
/// window leaves room for the plots.
size_t most_legend_lines(const Scene& scene) {
  if (scene.in.is_figure) return 6;
  return static_cast<float>(scene.in.height) < scene.paint.px(kShortWindow) ? 2 : 3;
}

constexpr float kReservedEntry = 100;  // points
constexpr float kPlanEntry = 70;
constexpr float kMoreEntry = 52;

/// Returns the categories that fit the legend: first those that decide, then the largest.
std::vector<Category> legend_choice(Scene& scene, std::vector<Category> used, float room) {
  std::ranges::stable_sort(used, std::greater(), [&](Category category) {
    return std::pair(is_decisive(category), most_bytes(scene.shown, category));
  });
  std::erase_if(used, [&](Category category) {
    const float width = legend_width(scene, category);
    const bool fits = width <= room;
    room = fits ? room - width : 0;
    return !fits;
  });
  return used;
}

bool shows_reserved(const Scene& scene) {
  return scene.state().panels.reserved && std::ranges::any_of(scene.shown, [](const ShownRun& one) {
           return one.reserved_peak > 0;
         });
}

bool has_plan_lines(const Scene& scene) {
  return std::ranges::any_of(scene.shown,
                             [](const ShownRun& one) { return one.plan_warp != nullptr; });
}

/// Returns the parts of steps that the ribbons under the plots show.
std::vector<PassPart> ribbon_parts(const Scene& scene) {
  PassParts parts = 0;
  if (scene.state().panels.ribbon) {
    for (const ShownRun& one : scene.shown) parts |= one.lane->parts;
  }
  std::vector<PassPart> used;
  for (int i = 0; i < kPassParts; ++i) {
    const auto part = static_cast<PassPart>(i);
    if (part != PassPart::other && (parts & only(part)) != 0) used.push_back(part);
  }
  return used;
}

/// The lines of the legend: an entry that does not fit in a line begins the next one.
class LegendLines {
 public:
  /// Divides a box into lines of the given height.
  LegendLines(const Box& box, float height)
      : rest_(box), height_(height), line_(rest_.take_top(height)) {}

  /// Returns the place of the next entry. After the last line, returns what is left of that line.
  Box take(float width) {
    if (width > line_.w && rest_.h >= height_ / 2) {
      line_ = rest_.take_top(height_);
      ++count_;
    }
    return line_.take_left(width);
  }
  const Box& rest_of_line() const { return line_; }
  size_t count() const { return count_; }

 private:
  Box rest_;  // the lines below
  float height_;
  Box line_;  // what is left of the line
  size_t count_ = 1;
};

/// Returns the widths of all entries in the order in which they are drawn.
std::vector<float> legend_widths(Scene& scene) {
  std::vector<float> widths;
  for (const Category category : used_categories(scene.shown)) {
    widths.push_back(legend_width(scene, category));
  }
  if (shows_reserved(scene)) widths.push_back(scene.paint.px(kReservedEntry));
  if (has_plan_lines(scene)) widths.push_back(scene.paint.px(kPlanEntry));
  return widths;
}

/// Returns how many lines all entries need.
size_t needed_lines(const std::vector<float>& widths, float width) {
  LegendLines lines({0, 0, width, static_cast<float>(widths.size() + 1)}, 1);
  for (const float one : widths) lines.take(one);
  return lines.count();
}

/// Returns the kinds of work that the rows of streams show.
std::vector<profiler::GpuWork> shown_work(const Scene& scene) {
  uint32_t kinds = 0;
  if (scene.state().panels.ribbon) {
    for (const ShownRun& one : scene.shown) {
      if (one.lane->work) kinds |= one.lane->work->kinds();
    }
  }
  std::vector<profiler::GpuWork> used;
  for (size_t i = 0; i < kWorkKinds; ++i) {
    if ((kinds >> i & 1U) != 0) used.push_back(static_cast<profiler::GpuWork>(i));
  }
  return used;
}

float entry_width(Scene& scene, std::string_view words) {
  return scene.paint.px(30) + scene.paint.width(Style::small, words);
}

/// An entry of the legend for a ribbon or the rows of streams.
struct SmallEntry {
  Color color;
  std::string_view words;
};

/// Returns the kinds of work and, if there is room for all of them, the parts of steps before
/// these.
std::vector<SmallEntry> small_entries(Scene& scene) {
  const Theme theme = scene.state().theme;
  std::vector<SmallEntry> parts, work;
  for (const PassPart part : ribbon_parts(scene)) {
    parts.push_back({color_of(part, theme), to_string(part)});
  }
  for (const profiler::GpuWork kind : shown_work(scene)) {
    work.push_back({color_of(kind, theme), to_string(kind)});
  }
  std::vector<SmallEntry> all = parts;
  all.insert(all.end(), work.begin(), work.end());
  std::vector<float> widths = legend_widths(scene);
  for (const SmallEntry& one : all) widths.push_back(entry_width(scene, one.words));
  const bool fit = needed_lines(widths, scene.geometry.legend.w) <= most_legend_lines(scene);
  return fit ? all : work;
}

void draw_small_entry(Scene& scene, const SmallEntry& one, Box entry) {
  Painter& paint = scene.paint;
  paint.fill({entry.x, entry.y + entry.h / 2 - paint.px(3), paint.px(14), paint.px(6)}, one.color);
  entry.take_left(paint.px(18));
  paint.text(entry, one.words, paint.colors.text, Style::small);
}

/// Draws the categories in stacking order from the top, and how many do not fit.
void draw_legend_categories(Scene& scene, LegendLines& lines) {
  const std::vector<Category> used = used_categories(scene.shown);
  std::vector<Category> chosen = used;
  const float width = scene.geometry.legend.w;
  const std::vector<float> widths = legend_widths(scene);
  if (!widths.empty() && needed_lines(widths, width) > most_legend_lines(scene)) {
    // Each line may end in a gap as wide as an entry.
    const float others =
        scene.paint.px(kReservedEntry + kPlanEntry + kMoreEntry) +
        static_cast<float>(most_legend_lines(scene) - 1) * *std::ranges::max_element(widths);
    chosen =
        legend_choice(scene, used, static_cast<float>(most_legend_lines(scene)) * width - others);
  }
  for (const Category category : used) {
    if (std::ranges::find(chosen, category) == chosen.end()) continue;
    draw_legend_entry(scene, category, lines.take(legend_width(scene, category)));
  }
  if (chosen.size() == used.size()) return;
  scene.paint.text(lines.take(scene.paint.px(kMoreEntry)),
                   fmt::format("{} more", used.size() - chosen.size()), scene.paint.colors.muted,
                   Style::small);
}

/// Draws the name of each run next to the line of its outline in the overlay.
void draw_line_names(Scene& scene, Box line) {
  Painter& paint = scene.paint;
  for (const size_t run : scene.compared) {
    const ShownRun& one = scene.shown[run];
    if (Scene::is_baseline(one)) continue;
    const float width = paint.width(Style::small, one.run->name);
    Box entry = line.take_right(width + paint.px(36));
    const float middle = entry.y + entry.h / 2;
    paint.line(entry.x, middle, entry.x + paint.px(18), middle,
               line_color(one.index, scene.state().theme), 2);
    entry.take_left(paint.px(22));
    paint.text(entry, one.run->name, paint.colors.text, Style::small);
  }
}

}  // namespace

void draw_header(Scene& scene) {
  Painter& paint = scene.paint;
  Box box = scene.geometry.header;
  float end = paint.text(box, title_of(scene), paint.colors.text, Style::title);
  if (const std::string notice = notice_of(scene); !notice.empty()) {
    const Box place{end + paint.px(14), box.y + paint.px(2), box.right() - end, box.h};
    end = paint.text(place, notice, paint.colors.warning, Style::small);
  }
  std::vector<std::string> how;
  const bool lacks_panel = scene.state().panels.alive && scene.geometry.alive.w <= 0 &&
                           scene.geometry.details.w <= 0 && scene.geometry.what_if.w <= 0;
  if (lacks_panel && scene.state().zoom > 1) {
    how.push_back(
        fmt::format("no room for the panels at {:.0f} %: Ctrl+-", 100 * scene.state().zoom));
  }
  how.push_back(place_words(scene));
  const auto add = [&](std::string words) {
    if (!words.empty()) how.push_back(std::move(words));
  };
  add(layout_words(scene));
  add(alignment_words(scene.state().alignment));
  add(height_words(scene));
  add(sort_words(scene));
  Box right{end + paint.px(16), box.y, box.right() - end - paint.px(16), box.h};
  // Parts that do not fit are left out whole, the least important first: half a word says nothing.
  const auto text = [&] { return fmt::format("{}", fmt::join(how, ", ")); };
  while (how.size() > 1 && paint.width(Style::body, text()) > right.w) how.pop_back();
  paint.text_right(right, text(), paint.colors.muted, Style::body);
}

size_t legend_lines(Scene& scene) {
  std::vector<float> widths = legend_widths(scene);
  for (const SmallEntry& one : small_entries(scene)) {
    widths.push_back(entry_width(scene, one.words));
  }
  return std::min(most_legend_lines(scene), needed_lines(widths, scene.geometry.legend.w));
}

void draw_legend(Scene& scene) {
  const Box& box = scene.geometry.legend;
  LegendLines lines(box, box.h / static_cast<float>(scene.geometry.legend_lines));
  draw_legend_categories(scene, lines);
  Painter& paint = scene.paint;
  if (shows_reserved(scene)) {
    Box entry = lines.take(paint.px(kReservedEntry));
    const float middle = entry.y + entry.h / 2;
    paint.line(entry.x, middle, entry.x + paint.px(5), middle, paint.colors.muted, 1.5F);
    paint.line(entry.x + paint.px(9), middle, entry.x + paint.px(14), middle, paint.colors.muted,
               1.5F);
    entry.take_left(paint.px(19));
    paint.text(entry, "reserved", paint.colors.text, Style::small);
  }
  if (has_plan_lines(scene)) {
    Box entry = lines.take(paint.px(kPlanEntry));
    const float middle = entry.y + entry.h / 2;
    for (const float at : {0.F, 9.F}) {
      paint.line(entry.x + paint.px(at), middle, entry.x + paint.px(at + 6), middle,
                 paint.colors.plan, 2.5F);
    }
    entry.take_left(paint.px(19));
    paint.text(entry, "plan", paint.colors.text, Style::small);
  }
  for (const SmallEntry& one : small_entries(scene)) {
    draw_small_entry(scene, one, lines.take(entry_width(scene, one.words)));
  }
  if (scene.state().layout == LaneLayout::overlay) {
    draw_line_names(scene, lines.rest_of_line());
  }
}

void draw_messages(Scene& scene) {
  Painter& paint = scene.paint;
  Box box = scene.geometry.messages;
  const auto& messages = scene.in.messages;
  const size_t lines = std::min<size_t>(3, messages.size());
  for (size_t i = 0; i < lines; ++i) {
    Box line = box.take_top(scene.geometry.messages.h / static_cast<float>(lines));
    const bool is_last = i + 1 == lines && messages.size() > lines;
    paint.text(line,
               is_last ? fmt::format("{} (and {} more)", messages[i], messages.size() - lines)
                       : messages[i],
               paint.colors.warning, Style::small);
  }
}

void draw_minimap(Scene& scene) {
  const Box& box = scene.geometry.minimap;
  if (box.h <= 0) return;
  Painter& paint = scene.paint;
  const ShownRun& one = scene.focus();
  const Range& all = scene.in.facts.extent;
  const LaneStyle style{.height = static_cast<int>(box.h),
                        .top_bytes = 1,
                        .theme = scene.state().theme,
                        .hidden_categories = scene.state().hidden_categories};
  const int width = static_cast<int>(box.w);
  const std::string key =
      fmt::format("{} {} {} {} {} {} {} {} {}", scene.in.generation, one.index, one.rank, width,
                  style.height, static_cast<int>(style.theme), style.hidden_categories,
                  static_cast<int>(scene.state().alignment), scene.state().baseline);
  paint.fill(box, paint.colors.card, paint.px(3));
  paint.image(box, scene.cache.get("minimap", key, [&] {
    const Columns cells = columns_of(*one.warp, one.lane->lane, all, width);
    LaneStyle fitted = style;
    for (const auto& total : totals_of(cells, style.hidden_categories)) {
      const double top = 1.1 * static_cast<double>(total.value_or(0));
      fitted.top_bytes = std::max(fitted.top_bytes, top);
    }
    return stack_image(cells, fitted);
  }));
  const auto x = [&](double at) {
    return box.x + static_cast<float>((at - all.begin) / all.length()) * box.w;
  };
  for (const double peak : scene.in.facts.peak_x) {
    paint.triangle(x(peak) - paint.px(3), box.y + paint.px(4), paint.px(6), false,
                   paint.colors.cursor);
  }
  const float begin = x(scene.view.begin);
  const float end = x(scene.view.end);
  paint.fill({box.x, box.y, begin - box.x, box.h}, paint.colors.background.with_alpha(190));
  paint.fill({end, box.y, box.right() - end, box.h}, paint.colors.background.with_alpha(190));
  paint.outline({begin, box.y, std::max(paint.px(2), end - begin), box.h}, paint.colors.accent, 0,
                1.5F);
  paint.area({box, Area::Kind::minimap, one.index, one.rank});
}

}  // namespace shardlens::viewer
