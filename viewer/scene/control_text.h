// Says what a press on a part of the picture does, and by which key it can be done as well.
#pragma once

#include <string>

#include "viewer/scene/scene.h"

namespace shardlens::viewer {

/// Returns the text for a part that has nothing to say of recordings; empty if it does nothing.
std::string control_text(const SceneInput& input, const Area& area);

}  // namespace shardlens::viewer
