// Writes a judgement as the fields that it has in all of Shardlens' JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "profiler/recording/judgement.h"

namespace shardlens::profiler {

/// Returns {"state": "whole", "peak": "exact", "lost_events": 0, "missing_from_ns": null, "faults":
/// []}.
nlohmann::ordered_json judgement_json(const Judgement& judgement);

}  // namespace shardlens::profiler
