#include "viewer/figure/svg.h"

#include <fmt/format.h>

#include <string_view>

#include "viewer/figure/png.h"
#include "viewer/page/page_columns.h"

namespace shardlens::viewer {

namespace {

std::string escaped(std::string_view text) {
  std::string safe;
  for (const char c : text) {
    if (c == '&') {
      safe += "&amp;";
    } else if (c == '<') {
      safe += "&lt;";
    } else if (c == '"') {
      safe += "&quot;";
    } else if (static_cast<unsigned char>(c) >= ' ') {
      safe += c;
    }
  }
  return safe;
}

/// Returns a colour as the attribute of that name, with its opacity if it is not whole.
std::string colored(std::string_view attribute, const Color& color) {
  std::string text =
      fmt::format(R"({}="#{:02x}{:02x}{:02x}")", attribute, color.r, color.g, color.b);
  if (color.a < 255) text += fmt::format(R"( {}-opacity="{:.3f}")", attribute, color.a / 255.0);
  return text;
}

std::string placed(const Box& box) {
  return fmt::format(R"(x="{:.2f}" y="{:.2f}" width="{:.2f}" height="{:.2f}")", box.x, box.y, box.w,
                     box.h);
}

std::string rounded(float radius) {
  return radius > 0 ? fmt::format(R"( rx="{:.2f}")", radius) : "";
}

class SvgWriter {
 public:
  SvgWriter(std::string& out, const Outliner& outliner) : out_(out), outliner_(outliner) {}

  void operator()(const Fill& item) {
    if (item.box.w <= 0 || item.box.h <= 0) return;
    out_ += fmt::format("<rect {}{} {}/>\n", placed(item.box), rounded(item.radius),
                        colored("fill", item.color));
  }
  void operator()(const Outline& item) {
    const Box box = item.box.inset(item.width / 2);
    out_ += fmt::format("<rect {}{} fill=\"none\" {} stroke-width=\"{:.2f}\"/>\n", placed(box),
                        rounded(item.radius), colored("stroke", item.color), item.width);
  }
  void operator()(const Line& item) {
    out_ += fmt::format(
        R"(<line x1="{:.2f}" y1="{:.2f}" x2="{:.2f}" y2="{:.2f}" {} stroke-width="{:.2f}"/>)"
        "\n",
        item.x0, item.y0, item.x1, item.y1, colored("stroke", item.color), item.width);
  }
  void operator()(const Triangle& item) {
    const auto& p = item.points;
    out_ += fmt::format("<path d=\"M{:.2f} {:.2f}L{:.2f} {:.2f}L{:.2f} {:.2f}Z\" {}/>\n", p[0],
                        p[1], p[2], p[3], p[4], p[5], colored("fill", item.color));
  }
  void operator()(const Text& item) {
    out_ += fmt::format("<path aria-label=\"{}\" {} d=\"", escaped(item.text),
                        colored("fill", item.color));
    bool is_open = false;
    for (const PathStep& step : outliner_(item)) {
      switch (step.kind) {
        case PathStep::Kind::move:
          out_ += fmt::format("{}M{:.2f} {:.2f}", is_open ? "Z" : "", step.x, step.y);
          is_open = true;
          break;
        case PathStep::Kind::line:
          out_ += fmt::format("L{:.2f} {:.2f}", step.x, step.y);
          break;
        case PathStep::Kind::curve:
          out_ += fmt::format("Q{:.2f} {:.2f} {:.2f} {:.2f}", step.control_x, step.control_y,
                              step.x, step.y);
          break;
      }
    }
    out_ += is_open ? "Z\"/>\n" : "\"/>\n";
  }
  void operator()(const PlacedImage& item) {
    out_ += fmt::format(
        "<image {} preserveAspectRatio=\"none\" xlink:href=\"data:image/png;base64,{}\"/>\n",
        placed(item.box), base64(png_of(image_at(item))));
  }

 private:
  std::string& out_;
  const Outliner& outliner_;
};

}  // namespace

std::string svg_of(const Picture& picture, const FigureSize& size, const Outliner& outliner) {
  std::string text = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" )"
      R"(version="1.1" width="{:g}" height="{:g}" viewBox="0 0 {} {}">)"
      "\n",
      size.width, size.height, picture.width, picture.height);
  SvgWriter writer(text, outliner);
  for (const Item& item : picture.items) std::visit(writer, item);
  return text + "</svg>\n";
}

}  // namespace shardlens::viewer
