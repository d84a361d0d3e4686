#include "viewer/ui/keys.h"

#include <GLFW/glfw3.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace shardlens::viewer {

namespace {

struct NamedKey {
  std::string_view name;
  int code;
};

constexpr std::array kNamedKeys = {
    NamedKey{"Left", GLFW_KEY_LEFT},      NamedKey{"Right", GLFW_KEY_RIGHT},
    NamedKey{"Up", GLFW_KEY_UP},          NamedKey{"Down", GLFW_KEY_DOWN},
    NamedKey{"Tab", GLFW_KEY_TAB},        NamedKey{"Escape", GLFW_KEY_ESCAPE},
    NamedKey{"Enter", GLFW_KEY_ENTER},    NamedKey{"F1", GLFW_KEY_F1},
    NamedKey{"F2", GLFW_KEY_F2},          NamedKey{"F3", GLFW_KEY_F3},
    NamedKey{"F4", GLFW_KEY_F4},          NamedKey{"F5", GLFW_KEY_F5},
    NamedKey{"F6", GLFW_KEY_F6},          NamedKey{"F7", GLFW_KEY_F7},
    NamedKey{"F8", GLFW_KEY_F8},          NamedKey{"F9", GLFW_KEY_F9},
    NamedKey{"Home", GLFW_KEY_HOME},      NamedKey{"End", GLFW_KEY_END},
    NamedKey{"Delete", GLFW_KEY_DELETE},  NamedKey{"Backspace", GLFW_KEY_BACKSPACE},
    NamedKey{"PageUp", GLFW_KEY_PAGE_UP}, NamedKey{"PageDown", GLFW_KEY_PAGE_DOWN},
};

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix) || text.size() == prefix.size()) return false;
  text.remove_prefix(prefix.size());
  return true;
}

}  // namespace

KeyChord parse_chord(std::string_view text) {
  KeyChord chord;
  for (bool more = true; more;) {
    more = false;
    if (take_prefix(text, "Ctrl+")) more = chord.ctrl = true;
    if (take_prefix(text, "Shift+")) more = chord.shift = true;
    if (take_prefix(text, "Alt+")) more = chord.alt = true;
  }
  const auto named = std::ranges::find(kNamedKeys, text, &NamedKey::name);
  if (named != kNamedKeys.end()) {
    chord.code = named->code;
  } else if (text.size() == 1) {
    chord.code = static_cast<unsigned char>(text[0]);  // GLFW's codes of these keys are ASCII
  }
  return chord;
}

KeyChord chord_of(int glfw_key, int glfw_modifiers, const char* name) {
  KeyChord chord{.code = glfw_key == GLFW_KEY_KP_ENTER ? GLFW_KEY_ENTER : glfw_key,
                 .ctrl = (glfw_modifiers & GLFW_MOD_CONTROL) != 0,
                 .shift = (glfw_modifiers & GLFW_MOD_SHIFT) != 0,
                 .alt = (glfw_modifiers & GLFW_MOD_ALT) != 0};
  const std::string_view text = name == nullptr ? "" : name;
  // What a key of the number pad means depends on more than its name.
  const bool is_named = glfw_key < GLFW_KEY_ESCAPE && text.size() == 1 &&
                        std::isgraph(static_cast<unsigned char>(text[0])) != 0;
  // With Alt a key produces no character, and a French 1 has the name of its other sign, &.
  const bool is_digit = chord.alt && glfw_key >= GLFW_KEY_0 && glfw_key <= GLFW_KEY_9;
  if (is_named && !is_digit) chord.code = std::toupper(static_cast<unsigned char>(text[0]));
  // So both a German + and an American = with Shift, which is +, enlarge.
  if (chord.ctrl && (chord.code == '+' || chord.code == '=')) {
    chord.code = '=';
    chord.shift = false;
  }
  return chord;
}

KeyChord with_character(KeyChord chord, unsigned character) {
  constexpr unsigned kLastAscii = 126;
  const bool is_sign =
      character > ' ' && character <= kLastAscii && std::isalpha(static_cast<int>(character)) == 0;
  if (!is_sign || chord.ctrl || chord.alt) return chord;
  return {.code = static_cast<int>(character)};
}

}  // namespace shardlens::viewer
