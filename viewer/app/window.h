// The viewer in a window of the desktop.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "viewer/scene/presenter.h"

namespace shardlens::viewer {

struct WindowOptions {
  int width = 1600;  // of the window, as the desktop counts
  int height = 1000;
  double scale = 0;  // pixels a point; 0: what the desktop says
  Theme theme{};     // until there is a presenter
  std::string font_file;
  std::string session_file = "shardlens.session.json";  // where Ctrl+S saves
  /// Where the session is saved without being asked, when the user pauses and when the window is
  /// closed; empty: nowhere.
  std::string autosave_file;
};

/// Opens what is to be shown; `meanwhile` shows how far that is.
using OpenPresenter = std::function<std::unique_ptr<Presenter>(const ReadPart& meanwhile)>;

/// Until the window is closed. Throws std::runtime_error where there is no display, before anything
/// is opened.
void show_window(const OpenPresenter& open, const WindowOptions& options);

}  // namespace shardlens::viewer
