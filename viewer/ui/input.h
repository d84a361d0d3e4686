// An input is one action of the user, with everything that it depends on. The window keeps inputs
// in the order in which they happened. ImGui is not asked for them: between two slow frames it
// would miss keys that are already up again, see modifiers as they are when the frame begins, and
// lose the last movement before a button goes up.
#pragma once

#include <cstdint>
#include <variant>

#include "viewer/ui/keys.h"

namespace shardlens::viewer {

/// Notches of the wheel, away from the user if above 0, with the pointer's position and the
/// modifiers at that time.
struct WheelTurn {
  float x = 0;
  float y = 0;
  float notches = 0;
  bool ctrl = false;
  bool shift = false;
  bool alt = false;
};

struct PointerMove {
  float x = 0;
  float y = 0;
};

/// The left button selects and drags; each of the others moves the view.
enum class Button : uint8_t { left, other };

struct ButtonChange {
  float x = 0;
  float y = 0;
  Button button{};
  bool is_down = false;
};

using Input = std::variant<KeyPress, WheelTurn, PointerMove, ButtonChange>;

}  // namespace shardlens::viewer
