#include "viewer/ui/fonts.h"

#include <fmt/format.h>
#include <imgui.h>

#include <cfloat>
#include <cmath>
#include <filesystem>
#include <stdexcept>

namespace shardlens::viewer {

namespace {

struct Typeface {
  const char* regular;
  const char* bold;
};

/// The files in which distributions ship the typefaces of nearly every desktop.
constexpr std::array kTypefaces = {
    Typeface{"/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf",
             "/usr/share/fonts/truetype/dejavu/DejaVuSans-Bold.ttf"},
    Typeface{"/usr/share/fonts/dejavu-sans-fonts/DejaVuSans.ttf",
             "/usr/share/fonts/dejavu-sans-fonts/DejaVuSans-Bold.ttf"},
    Typeface{"/usr/share/fonts/TTF/DejaVuSans.ttf", "/usr/share/fonts/TTF/DejaVuSans-Bold.ttf"},
    Typeface{"/usr/share/fonts/truetype/liberation/LiberationSans-Regular.ttf",
             "/usr/share/fonts/truetype/liberation/LiberationSans-Bold.ttf"},
};

struct Files {
  std::string regular;  // empty: ImGui's own
  std::string bold;
};

Files files_of(const std::string& wanted) {
  if (!wanted.empty()) {
    if (!std::filesystem::is_regular_file(wanted)) {
      throw std::invalid_argument(
          fmt::format("{}: no such font; give a .ttf file with --font, or leave it out", wanted));
    }
    return {wanted, wanted};
  }
  for (const Typeface& face : kTypefaces) {
    if (std::filesystem::exists(face.regular) && std::filesystem::exists(face.bold)) {
      return {face.regular, face.bold};
    }
  }
  return {};
}

bool is_bold(Style style) {
  return style == Style::strong || style == Style::title || style == Style::figure;
}

}  // namespace

void FontSet::build(const std::string& file, double scale) {
  ImFontAtlas& atlas = *ImGui::GetIO().Fonts;
  atlas.Clear();
  scale_ = scale;
  const Files files = files_of(file);
  ImFontConfig config;
  config.OversampleH = 2;
  config.PixelSnapH = true;
  for (size_t i = 0; i < kStyles; ++i) {
    const auto style = static_cast<Style>(i);
    // ImGui's sizes count the whole height of a line.
    const auto pixels = static_cast<float>(std::round(kPoints[i] * 1.16 * scale));
    if (files.regular.empty()) {
      config.SizePixels = pixels;
      fonts_[i] = atlas.AddFontDefault(&config);
    } else {
      const std::string& path = is_bold(style) ? files.bold : files.regular;
      fonts_[i] = atlas.AddFontFromFileTTF(path.c_str(), pixels, &config);
    }
    if (fonts_[i] == nullptr) {
      throw std::invalid_argument(
          fmt::format("{}: not a TrueType font; give another with --font", files.regular));
    }
    metrics_.heights[i] = pixels;
  }
  ImGui::GetIO().FontDefault = font(Style::body);
  atlas.Build();
  metrics_.width = [this](Style style, std::string_view text) {
    const ImFont* const font = this->font(style);
    return font->CalcTextSizeA(font->FontSize, FLT_MAX, 0, text.data(), text.data() + text.size())
        .x;
  };
}

}  // namespace shardlens::viewer
