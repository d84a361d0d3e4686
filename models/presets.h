// The table of models known by name. Private to models/: other folders use models/spec.h.
#pragma once

#include <span>
#include <string>

#include "models/families.h"

namespace shardlens::models {

struct Preset {
  std::string name;
  ModelSizes sizes;
};

std::span<const Preset> presets();

/// Returns the preset that a mistyped name most likely meant; empty if none is near.
std::string nearest_preset(const std::string& name);

}  // namespace shardlens::models
