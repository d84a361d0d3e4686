#include "viewer/app/imgui_session.h"

#include <backends/imgui_impl_opengl3.h>
#include <imgui.h>

#include <stdexcept>
#include <utility>

namespace shardlens::viewer {

ImGuiSession::ImGuiSession(std::string font_file) : font_file_(std::move(font_file)) {
  IMGUI_CHECKVERSION();
  ImGui::CreateContext();
  ImGui::GetIO().IniFilename = nullptr;  // the viewer saves its own sessions
  if (!ImGui_ImplOpenGL3_Init("#version 330")) {
    ImGui::DestroyContext();
    throw std::runtime_error(
        "OpenGL 3.3 is not supported here; use --report, which needs no OpenGL");
  }
}

ImGuiSession::~ImGuiSession() {
  ImGui_ImplOpenGL3_Shutdown();
  ImGui::DestroyContext();
}

void ImGuiSession::set_scale(double scale) {
  if (fonts_.scale() == scale) return;
  fonts_.build(font_file_, scale);
  ImGui_ImplOpenGL3_DestroyFontsTexture();
  ImGui_ImplOpenGL3_CreateFontsTexture();
  ImGui::GetStyle() = ImGuiStyle();
  ImGui::GetStyle().ScaleAllSizes(static_cast<float>(scale));
}

void ImGuiSession::render() { ImGui_ImplOpenGL3_RenderDrawData(ImGui::GetDrawData()); }

}  // namespace shardlens::viewer
