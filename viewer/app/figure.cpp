#include "viewer/app/figure.h"

#include <fmt/format.h>
#include <imgui.h>

#include <stdexcept>

#include "base/output_file.h"
#include "viewer/app/screenshot.h"
#include "viewer/figure/pdf.h"
#include "viewer/figure/png.h"
#include "viewer/figure/svg.h"
#include "viewer/ui/fonts.h"
#include "viewer/ui/glyph_outlines.h"

namespace shardlens::viewer {

namespace {

constexpr double kPrintScale = 3;  // 216 pixels an inch

/// Fonts of their own, beside those of a window that may be open.
class FigureFonts {
 public:
  FigureFonts(const std::string& file, double scale) : before_(ImGui::GetCurrentContext()) {
    own_ = ImGui::CreateContext();
    ImGui::SetCurrentContext(own_);
    ImGui::GetIO().IniFilename = nullptr;
    try {
      fonts_.build(file, scale);
    } catch (...) {
      close();
      throw;
    }
  }
  ~FigureFonts() { close(); }
  FigureFonts(const FigureFonts&) = delete;
  FigureFonts& operator=(const FigureFonts&) = delete;

  const FontSet& fonts() const { return fonts_; }

 private:
  void close() {
    ImGui::DestroyContext(own_);
    ImGui::SetCurrentContext(before_);
  }

  ImGuiContext* before_;
  ImGuiContext* own_ = nullptr;
  FontSet fonts_;
};

/// Refuses a figure that would leave out runs.
void require_all_lanes(Presenter& presenter, const FigureOptions& options) {
  const Facts& facts = presenter.facts();
  if (facts.lane_lines == facts.all_lane_lines) return;
  throw std::invalid_argument(fmt::format(
      "a figure of {}x{} points has no room for all runs; give a larger --size, or fewer runs",
      options.width, options.height));
}

}  // namespace

void require_figure_name(const std::string& path) {
  const bool is_known = path.ends_with(".svg") || path.ends_with(".pdf") || path.ends_with(".png");
  if (is_known) return;
  throw std::invalid_argument(fmt::format("--figure {}: end its name in .svg, .pdf or .png", path));
}

void write_figure(Presenter& presenter, const FigureOptions& options, const std::string& path) {
  const bool is_png = path.ends_with(".png");
  const double scale = options.scale > 0 ? options.scale : is_png ? 1 : kPrintScale;
  const auto pixels = [&](int points) { return static_cast<int>(points * scale); };
  const Canvas canvas{.width = pixels(options.width),
                      .height = pixels(options.height),
                      .scale = scale,
                      .is_figure = true};
  if (is_png) {
    const Image image = screenshot(presenter, {.width = canvas.width,
                                               .height = canvas.height,
                                               .scale = scale,
                                               .font_file = options.font_file,
                                               .is_figure = true});
    require_all_lanes(presenter, options);
    return write_png(image, path);
  }
  const FigureFonts fonts(options.font_file, scale * presenter.state().zoom);
  const Picture& picture = presenter.picture(canvas, fonts.fonts().metrics());
  require_all_lanes(presenter, options);
  const FigureSize size{.width = static_cast<double>(options.width),
                        .height = static_cast<double>(options.height)};
  const Outliner outliner = outliner_of(fonts.fonts());
  const std::string bytes =
      path.ends_with(".svg") ? svg_of(picture, size, outliner) : pdf_of(picture, size, outliner);
  write_text(path, bytes);
}

}  // namespace shardlens::viewer
