#include "viewer/ui/glyph_outlines.h"

#include <imgui.h>
#include <imgui_internal.h>

// ImGui's own copy of this library has no outlines.
#define STBTT_STATIC
#define STB_TRUETYPE_IMPLEMENTATION
#include <stb/stb_truetype.h>

#include <stdexcept>

namespace shardlens::viewer {

namespace {

/// The outlines of a font at the size that ImGui has for it.
class Outlines {
 public:
  explicit Outlines(const ImFont& font) : font_(font) {
    const auto* const bytes = static_cast<const unsigned char*>(font.ConfigData->FontData);
    const int offset = stbtt_GetFontOffsetForIndex(bytes, font.ConfigData->FontNo);
    if (offset < 0 || stbtt_InitFont(&info_, bytes, offset) == 0) {
      throw std::runtime_error("the font has no outlines; give another .ttf file with --font");
    }
    scale_ = stbtt_ScaleForPixelHeight(&info_, font.FontSize);
  }

  /// Adds a letter whose origin is at x, and the top of whose line is at y.
  void add(Path& path, ImWchar letter, float x, float y) const {
    const float base = y + font_.Ascent;
    stbtt_vertex* vertices = nullptr;
    const int count = stbtt_GetCodepointShape(&info_, letter, &vertices);
    const auto at_x = [&](short value) { return x + scale_ * value; };
    const auto at_y = [&](short value) { return base - scale_ * value; };
    for (int i = 0; i < count; ++i) {
      const stbtt_vertex& v = vertices[i];
      const auto kind = v.type == STBTT_vmove    ? PathStep::Kind::move
                        : v.type == STBTT_vcurve ? PathStep::Kind::curve
                                                 : PathStep::Kind::line;
      path.push_back({kind, at_x(v.x), at_y(v.y), at_x(v.cx), at_y(v.cy)});
    }
    stbtt_FreeShape(&info_, vertices);
  }
  float advance(ImWchar letter) const { return font_.FindGlyph(letter)->AdvanceX; }

 private:
  const ImFont& font_;
  stbtt_fontinfo info_{};
  float scale_ = 0;
};

}  // namespace

Outliner outliner_of(const FontSet& fonts) {
  return [&fonts](const Text& text) {
    const Outlines outlines(*fonts.font(text.style));
    Path path;
    float x = text.x;
    const char* at = text.text.data();
    const char* const end = at + text.text.size();
    while (at < end) {
      unsigned int letter = 0;
      at += ImTextCharFromUtf8(&letter, at, end);
      outlines.add(path, static_cast<ImWchar>(letter), x, text.y);
      x += outlines.advance(static_cast<ImWchar>(letter));
    }
    return path;
  };
}

}  // namespace shardlens::viewer
