// Shows the viewer in a desktop window.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "viewer/scene/presenter.h"

namespace shardlens::viewer {

struct WindowOptions {
  int width = 1600;  // of the window, in the desktop's units
  int height = 1000;
  double scale = 0;  // pixels per point; 0: the desktop decides
  Theme theme{};     // until there is a presenter
  std::string font_file;
  std::string editor;                                   // as Editor takes it
  std::string session_file = "shardlens.session.json";  // where Ctrl+S saves
  /// The file to which the session is saved automatically, when the user pauses and when the window
  /// is closed; empty: the session is not saved.
  std::string autosave_file;
  std::string recent_file{};  // lists what was opened; empty: nothing is remembered
};

/// Opens the recordings to show; calls `meanwhile` to show its progress.
using OpenPresenter = std::function<std::unique_ptr<Presenter>(const ReadProgress& meanwhile)>;

/// Shows the window until it is closed. Throws std::runtime_error, before anything is opened, if
/// there is no display.
void show_window(const OpenPresenter& open, const WindowOptions& options);

}  // namespace shardlens::viewer
