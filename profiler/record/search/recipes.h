// Reads a file of recipes: programs, each with flags of `shardlens record`, and lists of values
// that are combined.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "profiler/record/record_options.h"

namespace shardlens::profiler {

/// One combination of a recipe's values.
struct Recipe {
  std::string name;       // "sft", or "sft,batch=8,device=null:l4" where a recipe has lists
  RecordOptions options;  // `out` is the folder of all recipes
};

/// Returns the recipes of a document, each combination of their lists in the order of the keys'
/// names. Throws std::invalid_argument, which names the recipe.
///
///     world: 16                                  # of all recipes that do not say otherwise
///     recipes:
///       sft:
///         command: python sft.py --batch {batch} # or a list of words
///         device: [null:h100, null:l4]           # a flag of `shardlens record`
///         with: [null, recompute]                # null: without the flag
///         batch: [8, 16]                         # a placeholder of the command
std::vector<Recipe> recipes_of(const nlohmann::json& document, const std::string& out);

}  // namespace shardlens::profiler
