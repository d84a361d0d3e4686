#include "viewer/app/screenshot.h"

#include <backends/imgui_impl_opengl3.h>
#include <imgui.h>

#include "viewer/app/gl.h"
#include "viewer/app/imgui_session.h"
#include "viewer/app/offscreen.h"
#include "viewer/ui/interface.h"

namespace shardlens::viewer {

Image screenshot(Presenter& presenter, const ScreenshotOptions& options) {
  const OffscreenContext target(options.width, options.height);
  ImGuiSession session(options.font_file);
  GlBackdrop backdrop;
  session.set_scale(options.scale * presenter.state().zoom);
  Interface interface(presenter, session.fonts(), backdrop);
  ImGuiIO& io = ImGui::GetIO();
  io.DisplaySize = {static_cast<float>(options.width), static_cast<float>(options.height)};
  io.DeltaTime = 1.0F / 60;
  ImGui_ImplOpenGL3_NewFrame();
  ImGui::NewFrame();
  interface.draw({.width = options.width,
                  .height = options.height,
                  .scale = options.scale,
                  .has_menu = false,
                  .is_figure = options.is_figure});
  ImGui::Render();
  session.render();
  return read_target(options.width, options.height);
}

}  // namespace shardlens::viewer
