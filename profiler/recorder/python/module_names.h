// Names the modules of a Python program, whose places in their model only Python knows (models.py).
#pragma once

#include <string>

namespace shardlens::profiler {

struct ModuleName {
  std::string path;  // in its model, "layers.11.mlp"; empty for the model itself
  std::string class_name;

  const std::string& text() const { return path.empty() ? class_name : path; }
  auto operator<=>(const ModuleName&) const = default;
};

/// Says what the module at an address is, until it is forgotten. Any thread may call these.
void name_module(const void* module, const ModuleName& name);
void forget_module(const void* module);
/// Returns the name, kept as long as the process: equal names are the same object; null: it has
/// none.
const ModuleName* name_of_module(const void* module);

}  // namespace shardlens::profiler
