// Commands that choose something or switch it on: menus mark them while they are on.
#pragma once

#include <optional>
#include <string_view>

#include "viewer/state/view_state.h"

namespace shardlens::viewer {

/// Returns whether the choice of a command is on; nothing for a command that can be given again and
/// again.
std::optional<bool> is_on(std::string_view command, const ViewState& state);

}  // namespace shardlens::viewer
