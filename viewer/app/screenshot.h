// Makes the picture of a state without a window.
#pragma once

#include <string>

#include "viewer/scene/presenter.h"

namespace shardlens::viewer {

struct ScreenshotOptions {
  int width = 1600;   // pixels
  int height = 1000;  //
  double scale = 1;   // pixels per point
  std::string font_file;
  bool is_figure = false;  // only plots and the legend
};

/// Returns the picture of the presenter's state: the same bytes for the same state on the same
/// machine. Throws std::runtime_error if there is no OpenGL.
Image screenshot(Presenter& presenter, const ScreenshotOptions& options);

}  // namespace shardlens::viewer
