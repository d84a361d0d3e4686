#include "viewer/paint/theme.h"

#include <algorithm>

#include "profiler/recording/profile.h"
#include "viewer/model/compare.h"

namespace shardlens::viewer {

using profiler::Category;

namespace {

constexpr Color rgb(uint32_t hex) {
  return {static_cast<uint8_t>(hex >> 16), static_cast<uint8_t>(hex >> 8 & 0xFF),
          static_cast<uint8_t>(hex & 0xFF)};
}

constexpr Colors kLight = {.background = rgb(0xF3F4F6),
                           .card = rgb(0xFFFFFF),
                           .card_edge = rgb(0xD5D9DF),
                           .plot = rgb(0xFAFBFC),
                           .grid = rgb(0xE3E6EA),
                           .text = rgb(0x1B1F24),
                           .muted = rgb(0x59626D),
                           .accent = rgb(0x0A5FB4),
                           .on_accent = rgb(0xFFFFFF),
                           .more = rgb(0xB3261E),
                           .less = rgb(0x0B6B52),
                           .warning = rgb(0x8A4B00),
                           .edge = rgb(0x1B1F24),
                           .cursor = rgb(0x1B1F24),
                           .plan = rgb(0xC2185B)};

constexpr Colors kDark = {.background = rgb(0x14161A),
                          .card = rgb(0x1D2026),
                          .card_edge = rgb(0x353A43),
                          .plot = rgb(0x16181C),
                          .grid = rgb(0x2D3139),
                          .text = rgb(0xE8EAED),
                          .muted = rgb(0xA3ABB6),
                          .accent = rgb(0x7CB8FF),
                          .on_accent = rgb(0x0C1117),
                          .more = rgb(0xFF9A8F),
                          .less = rgb(0x6FD6B4),
                          .warning = rgb(0xFFC266),
                          .edge = rgb(0xF2F4F7),
                          .cursor = rgb(0xF2F4F7),
                          .plan = rgb(0xFF5FB0)};

constexpr Colors kContrast = {.background = rgb(0x000000),
                              .card = rgb(0x000000),
                              .card_edge = rgb(0xFFFFFF),
                              .plot = rgb(0x000000),
                              .grid = rgb(0x5A5A5A),
                              .text = rgb(0xFFFFFF),
                              .muted = rgb(0xE6E6E6),
                              .accent = rgb(0xFFFF00),
                              .on_accent = rgb(0x000000),
                              .more = rgb(0xFFB0A8),
                              .less = rgb(0x90FFD9),
                              .warning = rgb(0xFFD060),
                              .edge = rgb(0xFFFFFF),
                              .cursor = rgb(0xFFFFFF),
                              .plan = rgb(0xFF40FF)};

}  // namespace

const Colors& colors_of(Theme theme) {
  switch (theme) {
    case Theme::light:
      return kLight;
    case Theme::dark:
      return kDark;
    case Theme::contrast:
      break;
  }
  return kContrast;
}

Color color_of(Category category) {
  switch (category) {
    case Category::parameter_shard:
      return rgb(0x0072B2);
    case Category::gradient_shard:
      return rgb(0xE69F00);
    case Category::optimizer_state:
      return rgb(0x009E73);
    case Category::unsharded_parameter:
      return rgb(0xD55E00);
    case Category::reduce_buffer:
      return rgb(0xCC79A7);
    case Category::gradient:
      return rgb(0x8A2BE2);
    case Category::activation:
      return rgb(0x56B4E9);
    case Category::input:
      return rgb(0x55552B);
    case Category::workspace:
      return rgb(0xE6D435);
    case Category::communication:
      return rgb(0x6B2A6B);
    case Category::checkpoint_staging:
      return rgb(0x3F36A8);
    case Category::parameter_copy:
      return rgb(0xBCF394);
    case Category::other:
      break;
  }
  return rgb(0x5F6B73);
}

Color ink_on(const Color& ground) {
  const double light = 0.299 * ground.r + 0.587 * ground.g + 0.114 * ground.b;
  return light > 128 ? rgb(0x000000) : rgb(0xFFFFFF);
}

const std::array<Category, kCategoryCount>& stacking_order() {
  static constexpr std::array order = {Category::parameter_shard,
                                       Category::gradient_shard,
                                       Category::optimizer_state,
                                       Category::unsharded_parameter,
                                       Category::parameter_copy,
                                       Category::communication,
                                       Category::reduce_buffer,
                                       Category::input,
                                       Category::activation,
                                       Category::gradient,
                                       Category::workspace,
                                       Category::checkpoint_staging,
                                       Category::other};
  return order;
}

std::string words_of(Category category, bool has_shards) {
  return in_words(profiler::category_name(category, has_shards));
}

bool is_hatched(Category category, int x, int y, int period) {
  const int half = std::max(2, period / 2);
  switch (category) {
    case Category::parameter_shard:
    case Category::other:
      return false;
    case Category::gradient_shard:
      return (x + y) % period == 0;
    case Category::optimizer_state:
      return y % half == 0;
    case Category::unsharded_parameter:
      return (x - y % period + period) % period == 0;
    case Category::reduce_buffer:
      return x % half == 0;
    case Category::gradient:
      return (x + y) % half == 0;
    case Category::activation:
      return x % period == 0 && y % period == 0;
    case Category::input:
      return y % period == 0;
    case Category::workspace:
      return x % period == 0 || y % period == 0;
    case Category::communication:
      return x % period == 0;
    case Category::parameter_copy:
      return (x - y % half + half) % half == 0;
    case Category::checkpoint_staging:
      return (x + y) % period == 0 || (x - y % period + period) % period == 0;
  }
  return false;
}

Color line_color(size_t run, Theme theme) {
  constexpr std::array on_light = {rgb(0x1B1F24), rgb(0xB3261E), rgb(0x6A1B9A),
                                   rgb(0x0A5FB4), rgb(0x0B6B52), rgb(0x8A4B00)};
  constexpr std::array on_dark = {rgb(0xF2F4F7), rgb(0xFF9A8F), rgb(0xD9A6FF),
                                  rgb(0x7CB8FF), rgb(0x6FD6B4), rgb(0xFFC266)};
  return theme == Theme::light ? on_light[run % on_light.size()] : on_dark[run % on_dark.size()];
}

Color color_of(profiler::GpuWork work, Theme theme) {
  constexpr std::array on_light = {rgb(0x3E7CB1), rgb(0xD9702F), rgb(0x4E9A51), rgb(0x8A6FA8)};
  constexpr std::array on_dark = {rgb(0x6FB1E6), rgb(0xF0955A), rgb(0x7CCB80), rgb(0xBFA3DE)};
  const auto index = static_cast<size_t>(work);
  return theme == Theme::light ? on_light[index] : on_dark[index];
}

Color color_of(PassPart part, Theme theme) {
  constexpr std::array<Color, kPassParts> on_light = {
      rgb(0x9AA4AF), rgb(0xE79A66), rgb(0x7FC4EA), rgb(0xF0DC5A), rgb(0xB889E8),
      rgb(0xDDA0C4), rgb(0x5FBF9F), rgb(0xE79A66), rgb(0xC9B26B), rgb(0xC5CBD2)};
  constexpr std::array<Color, kPassParts> on_dark = {
      rgb(0x565F69), rgb(0x93491A), rgb(0x2C678A), rgb(0x6E6114), rgb(0x6E41A8),
      rgb(0x824A6E), rgb(0x1F6650), rgb(0x93491A), rgb(0x5E5320), rgb(0x414851)};
  const auto index = static_cast<size_t>(part);
  return theme == Theme::light ? on_light[index] : on_dark[index];
}

}  // namespace shardlens::viewer
