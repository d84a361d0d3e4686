#include "viewer/ui/canvas.h"

#include <imgui.h>

namespace shardlens::viewer {

void draw(const Picture& picture, const Image& ground, const FontSet& fonts, Backdrop& backdrop,
          ImDrawList& list) {
  backdrop.add(ground, list);
  for (const Item& item : picture.items) {
    const auto* const text = std::get_if<Text>(&item);
    if (text == nullptr) continue;
    const Color& c = text->color;
    ImFont* const font = fonts.font(text->style);
    list.AddText(font, font->FontSize, {text->x, text->y}, IM_COL32(c.r, c.g, c.b, c.a),
                 text->text.data(), text->text.data() + text->text.size());
  }
}

}  // namespace shardlens::viewer
