// A line of text that the user types. Keys change it in the order in which they came: a text field
// of ImGui loses what is typed before the frame in which it gets the keyboard focus, and frames can
// be slow.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "viewer/ui/keys.h"

namespace shardlens::viewer {

class LineEditor {
 public:
  /// Begins with a text that is selected: what is typed first replaces it.
  void start(std::string text);
  /// Takes a key. Returns true if the key changed the text.
  bool press(const KeyPress& press);
  /// Inserts a text at the cursor, without its control characters.
  void put(std::string_view text);

  const std::string& text() const { return text_; }
  size_t cursor() const { return cursor_; }  // in bytes
  bool is_selected() const { return is_selected_; }

 private:
  size_t position_before(size_t at) const;
  size_t position_behind(size_t at) const;
  bool erase(size_t begin, size_t end);
  bool move_to(size_t at);

  std::string text_;
  size_t cursor_ = 0;
  bool is_selected_ = false;
};

}  // namespace shardlens::viewer
