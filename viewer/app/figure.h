// Writes a figure for a paper or slides: plots with their axes and the legend, and nothing else.
#pragma once

#include <string>

#include "viewer/scene/presenter.h"

namespace shardlens::viewer {

struct FigureOptions {
  int width = 800;  // points
  int height = 500;
  double scale = 0;  // pixels per point; 0: enough for print, or 1 for PNG
  std::string font_file;
};

/// Throws std::invalid_argument if the name of the file ends in neither .svg, .pdf nor .png.
void require_figure_name(const std::string& path);

/// Writes the presenter's plots to a file of that kind. Only .png needs OpenGL. Throws
/// std::runtime_error if it cannot.
void write_figure(Presenter& presenter, const FigureOptions& options, const std::string& path);

}  // namespace shardlens::viewer
