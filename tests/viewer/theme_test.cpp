// Checks that everybody can read the picture: contrast of text as WCAG 2 defines it, and distances
// between categories' colours as people with the three colour-vision deficiencies see them
// (Machado, Oliveira and Fernandes 2009, full severity; distance in CIE 1976 L*a*b*).

#include "viewer/paint/theme.h"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <set>

namespace shardlens::viewer {
namespace {

using Vector = std::array<double, 3>;
using Matrix = std::array<Vector, 3>;

constexpr std::array<Matrix, 4> kVisions = {{
    {{{1, 0, 0}, {0, 1, 0}, {0, 0, 1}}},
    {{{0.152286, 1.052583, -0.204868},
      {0.114503, 0.786281, 0.099216},
      {-0.003882, -0.048116, 1.051998}}},
    {{{0.367322, 0.860646, -0.227968},
      {0.280085, 0.672501, 0.047413},
      {-0.011820, 0.042940, 0.968881}}},
    {{{1.255528, -0.076749, -0.178779},
      {-0.078411, 0.930809, 0.147602},
      {0.004733, 0.691367, 0.303900}}},
}};

Vector linear(const Color& color) {
  const auto part = [](uint8_t c) {
    const double value = c / 255.0;
    return value <= 0.04045 ? value / 12.92 : std::pow((value + 0.055) / 1.055, 2.4);
  };
  return {part(color.r), part(color.g), part(color.b)};
}

Vector times(const Matrix& m, const Vector& v) {
  Vector product{};
  for (size_t i = 0; i < 3; ++i) {
    for (size_t j = 0; j < 3; ++j) product[i] += m[i][j] * v[j];
    product[i] = std::clamp(product[i], 0.0, 1.0);
  }
  return product;
}

Vector lab(const Vector& rgb) {
  const auto f = [](double t) { return t > 0.008856 ? std::cbrt(t) : 7.787 * t + 16.0 / 116; };
  const double x = f((0.4124 * rgb[0] + 0.3576 * rgb[1] + 0.1805 * rgb[2]) / 0.95047);
  const double y = f(0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2]);
  const double z = f((0.0193 * rgb[0] + 0.1192 * rgb[1] + 0.9505 * rgb[2]) / 1.08883);
  return {116 * y - 16, 500 * (x - y), 200 * (y - z)};
}

/// The least difference between two colours for any of the four kinds of vision.
double least_distance(const Color& a, const Color& b) {
  double least = 1e9;
  for (const Matrix& vision : kVisions) {
    const Vector u = lab(times(vision, linear(a)));
    const Vector v = lab(times(vision, linear(b)));
    least = std::min(least, std::hypot(u[0] - v[0], u[1] - v[1], u[2] - v[2]));
  }
  return least;
}

double luminance(const Color& color) {
  const Vector rgb = linear(color);
  return 0.2126 * rgb[0] + 0.7152 * rgb[1] + 0.0722 * rgb[2];
}

double contrast(const Color& a, const Color& b) {
  const double low = std::min(luminance(a), luminance(b));
  const double high = std::max(luminance(a), luminance(b));
  return (high + 0.05) / (low + 0.05);
}

Color blend(const Color& top, const Color& ground) {
  const auto mix = [&](uint8_t from, uint8_t to) {
    return static_cast<uint8_t>(std::lround(from + (to - from) * (top.a / 255.0)));
  };
  return {mix(ground.r, top.r), mix(ground.g, top.g), mix(ground.b, top.b)};
}

const std::array kThemes = {Theme::light, Theme::dark, Theme::contrast};

}  // namespace

TEST_CASE("text has a contrast of 4.5 on every background, in every theme") {
  for (const Theme theme : kThemes) {
    CAPTURE(to_string(theme));
    const Colors& c = colors_of(theme);
    for (const Color& ground : {c.background, c.card, c.plot}) {
      for (const Color& text : {c.text, c.muted, c.more, c.less, c.warning, c.accent}) {
        CHECK(contrast(text, ground) >= 4.5);
      }
    }
    CHECK(contrast(c.on_accent, c.accent) >= 4.5);
    // Labels over the cursor's background, on bars of steps and phases, on actions.
    CHECK(contrast(c.plot, blend(c.cursor.with_alpha(230), c.plot)) >= 4.5);
    CHECK(contrast(c.text, blend(c.accent.with_alpha(70), c.plot)) >= 4.5);
    CHECK(contrast(c.text, c.grid) >= 4.5);
    for (int part = 0; part < kPassParts; ++part) {
      CAPTURE(part);
      CHECK(contrast(c.text, color_of(static_cast<PassPart>(part), theme)) >= 4.5);
    }
    for (size_t run = 0; run < 6; ++run) CHECK(contrast(line_color(run, theme), c.plot) >= 4.5);
  }
}

TEST_CASE("categories can be distinguished with every colour vision") {
  const auto& order = stacking_order();
  CHECK(std::set<Category>(order.begin(), order.end()).size() == kCategories);
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t j = i + 1; j < order.size(); ++j) {
      CAPTURE(words_of(order[i], true), words_of(order[j], true));
      const double distance = least_distance(color_of(order[i]), color_of(order[j]));
      // Neighbours, those with one empty band between them, and any two.
      CHECK(distance >= (j == i + 1 ? 20 : j == i + 2 ? 15 : 11));
    }
  }
}

TEST_CASE("hatches of neighbours differ, so that colour is not needed") {
  constexpr int kPeriod = 8;
  const auto pattern = [](Category category) {
    std::vector<bool> pixels;
    for (int y = 0; y < 3 * kPeriod; ++y) {
      for (int x = 0; x < 3 * kPeriod; ++x) pixels.push_back(is_hatched(category, x, y, kPeriod));
    }
    return pixels;
  };
  const auto& order = stacking_order();
  for (size_t i = 1; i < order.size(); ++i) CHECK(pattern(order[i]) != pattern(order[i - 1]));
}

}  // namespace shardlens::viewer
