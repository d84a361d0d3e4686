// Writes a matching as the fields that it has in all of Shardlens' JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "profiler/compare/matching.h"

namespace shardlens::profiler {

/// Returns {"in_both_bytes": ..., "only_a_bytes": ..., "only_b_bytes": ..., "rows": [...]} with the
/// two sides called `a` and `b`. The rows are the places that differ, each with its change; the
/// bytes of all other places are in both.
nlohmann::ordered_json matching_json(const Matching& matching, const std::string& a,
                                     const std::string& b);

}  // namespace shardlens::profiler
