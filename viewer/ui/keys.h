// Parses keys as the table of commands writes them.
#pragma once

#include <string_view>

namespace shardlens::viewer {

struct KeyChord {
  int code = -1;  // GLFW's; -1: not a key
  bool ctrl = false;
  bool shift = false;
  bool alt = false;

  bool operator==(const KeyChord&) const = default;
};

/// A key that went down, and the character that it produces; 0: none.
struct KeyPress {
  KeyChord chord;
  unsigned character = 0;
};

/// Parses "Ctrl+Shift+E", "F1", "Left" or "[". The code of an unknown key is -1.
KeyChord parse_chord(std::string_view text);

/// Returns the chord for the arguments of GLFW's key callback. `name` is the key's name on the
/// user's keyboard, as glfwGetKeyName returns it: Z is the key named "z". With Alt a digit is where
/// an American keyboard has it, and with Ctrl "+" and "=" are one key.
KeyChord chord_of(int glfw_key, int glfw_modifiers, const char* name = nullptr);

/// Returns the chord for a produced character: a digit or a sign is that key wherever it is on the
/// keyboard, with Shift or without, as "/" is on 7 of a German keyboard.
KeyChord with_character(KeyChord chord, unsigned character);

}  // namespace shardlens::viewer
