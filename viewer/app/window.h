// The viewer in a window of the desktop.
#pragma once

#include <string>

#include "viewer/scene/presenter.h"

namespace shardlens::viewer {

struct WindowOptions {
  int width = 1600;  // of the window, as the desktop counts
  int height = 1000;
  double scale = 0;  // pixels a point; 0: what the desktop says
  std::string font_file;
  std::string session_file = "shardlens.session.json";  // where Ctrl+S saves
  /// Where the session is saved without being asked, when the user pauses and when the window is
  /// closed; empty: nowhere.
  std::string autosave_file;
};

/// Until the window is closed. Throws std::runtime_error where there is no display.
void show_window(Presenter& presenter, const WindowOptions& options);

}  // namespace shardlens::viewer
