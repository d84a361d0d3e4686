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

/// A key that went down, and the character that it gives; 0: none.
struct KeyPress {
  KeyChord chord;
  unsigned character = 0;
};

/// Parses "Ctrl+Shift+E", "F1", "Left" or "[". The code of an unknown key is -1.
KeyChord parse_chord(std::string_view text);

/// Returns the chord of the arguments of GLFW's key callback. `name` is the key's name on the
/// user's keyboard, as glfwGetKeyName returns it: Z is where that says "z". Beside Alt a digit is
/// where an American keyboard has it, and beside Ctrl "+" and "=" are one key.
KeyChord chord_of(int glfw_key, int glfw_modifiers, const char* name = nullptr);

/// Returns the chord whose key has given a character: a digit or a sign is that key wherever it
/// stands, and with Shift or without, as "/" is on 7 of a German keyboard.
KeyChord with_character(KeyChord chord, unsigned character);

}  // namespace shardlens::viewer
