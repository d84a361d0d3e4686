// Parses keys in the words of the table of commands.
#pragma once

#include <string_view>

namespace shardlens::viewer {

struct KeyChord {
  int code = -1;  // of GLFW; -1: not a key
  bool ctrl = false;
  bool shift = false;
  bool alt = false;

  bool operator==(const KeyChord&) const = default;
};

/// Parses "Ctrl+Shift+E", "F1", "Left" or "[". The code of an unknown key is -1.
KeyChord parse_chord(std::string_view text);

/// Returns the chord of the arguments of GLFW's key callback.
KeyChord chord_of(int glfw_key, int glfw_modifiers);

}  // namespace shardlens::viewer
