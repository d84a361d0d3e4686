// Says what a press on a part of the picture does, and which key has the same effect.
#pragma once

#include <string>

#include "viewer/scene/scene.h"

namespace shardlens::viewer {

/// Returns the text for a part that has nothing to say about recordings; empty if the part does
/// nothing.
std::string control_text(const SceneInput& input, const Area& area);

}  // namespace shardlens::viewer
