// Draws one frame of the window's contents: menu, picture, palette, key sheet and the few prompts
// that take text. Turns keys and the pointer into commands.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "viewer/model/browse.h"
#include "viewer/paint/theme.h"
#include "viewer/scene/presenter.h"
#include "viewer/ui/canvas.h"
#include "viewer/ui/fonts.h"
#include "viewer/ui/input.h"
#include "viewer/ui/line_editor.h"

namespace shardlens::viewer {

class Interface {
 public:
  struct Frame {
    int width = 0;
    int height = 0;
    double scale = 1;  // pixels per point, without the state's own zoom
    bool has_menu = true;
    bool is_figure = false;  // only plots and the legend
  };

  Interface(Presenter& presenter, FontSet& fonts, Backdrop& backdrop)
      : presenter_(presenter), fonts_(fonts), backdrop_(backdrop) {}

  /// Takes what the user did since the last frame.
  void take(const Input& input) { inputs_.push_back(input); }
  void press(const KeyChord& chord) { take(KeyPress{.chord = chord}); }
  /// Returns true if something waits for another frame.
  bool has_inputs() const { return !inputs_.empty(); }

  /// Draws the frame. Call it between ImGui::NewFrame and ImGui::Render.
  void draw(const Frame& frame);

  /// Returns the last request to the surrounding program, and forgets it.
  Request take_request();
  /// Returns the path that was typed for the last request of file.open or an export.
  const std::string& path() const { return path_; }
  /// Copies a text, and says so; if it is empty, says `otherwise` instead.
  void copy(const std::string& text, const char* otherwise);
  /// Sets what was opened before, the latest first.
  void set_recent(std::vector<std::string> paths) { recent_ = std::move(paths); }
  /// Shows a text in the menu line for a while, or until the next command.
  void say(std::string text);
  /// Returns true once a shown text has been there long enough, and forgets it.
  bool forgets();

 private:
  enum class Prompt { nothing, palette, search, note, notes, rename, open, help };

  void run(const Command& command);
  void ask(Prompt what);
  void draw_menu();
  void take_inputs();
  void take_input(const KeyPress& key);
  void take_input(const WheelTurn& turn);
  void take_input(const PointerMove& move);
  void take_input(const ButtonChange& change);
  bool is_over_picture(float y) const;
  static bool is_menu_open();
  void take_command_key(const KeyChord& chord);
  void take_question_key(const KeyPress& key);
  void draw_tooltip();
  void draw_question();
  void draw_palette();
  void draw_help();
  void draw_text_question(const char* title, const char* hint);
  void draw_line(const char* hint) const;
  void draw_open();
  void draw_notes_list();
  void take_path();
  void take_browsed(const BrowsedPath& chosen);
  const std::vector<BrowsedPath>& browsed_paths();
  void answer();
  void draw_hint();
  void apply_theme();

  Presenter& presenter_;
  FontSet& fonts_;
  Backdrop& backdrop_;
  std::vector<Input> inputs_;
  PointerMove pointer_;       // after the last input that was taken
  bool is_dragging_ = false;  // with the left button, from the picture on
  bool is_panning_ = false;   // with another button
  Request request_ = Request::none;
  Prompt asking_ = Prompt::nothing;
  LineEditor line_;
  std::vector<std::string> recent_;
  std::optional<std::string> browsed_for_;  // the typed text that browsed_ is for
  std::vector<BrowsedPath> browsed_;
  size_t chosen_ = 0;
  std::string path_;
  std::string said_;
  std::chrono::steady_clock::time_point said_at_{};
  float menu_height_ = 0;
  bool closes_menu_ = false;  // an open menu, in the next frame
};

/// Draws a frame that shows how far recordings have been read, from 0 to 1.
void draw_progress(double part, const Colors& colors);

}  // namespace shardlens::viewer
