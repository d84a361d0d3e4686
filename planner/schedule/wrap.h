// Decides which units are gathered together. Private to the planner; the layout calls it.
//
// A unit is never cut: a module that is a part of a unit takes the rest of the unit along. Units
// that share a parameter (tied weights) are in one group, whatever the policy says, because a
// parameter has one place.
#pragma once

#include <string>
#include <vector>

#include "models/spec.h"
#include "planner/config/strategy.h"

namespace shardlens::planner {

/// Returns the parameter that a unit names by its index.
const models::ParameterSpec& parameter_of(const models::ModelSpec& spec, int index);

/// Returns by unit the name of its group; empty if the unit has no parameters. Throws
/// std::invalid_argument for a policy that does not fit the model.
std::vector<std::string> wrap_units(const models::ModelSpec& spec, const Wrap& wrap);

/// Returns by unit the index of its block, from 0; -1: the embedding, the head. Blocks are those of
/// the model, whatever is gathered together.
std::vector<int> blocks_of_units(const models::ModelSpec& spec);

}  // namespace shardlens::planner
