// The table of models known by name. Private to models/: everybody else asks models/spec.h.
#pragma once

#include <span>
#include <string>

#include "models/families.h"

namespace shardlens::models {

struct Preset {
  std::string name;
  Sizes sizes;
};

std::span<const Preset> presets();

/// The preset that a mistyped name most likely meant; empty where none is near.
std::string nearest_preset(const std::string& name);

}  // namespace shardlens::models
