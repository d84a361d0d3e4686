// A judgement as the fields that every JSON of ours gives it.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "profiler/judgement.h"

namespace shardlens::profiler {

/// {"state": "whole", "peak": "exact", "lost_events": 0, "missing_from_ns": null, "faults": []}
nlohmann::ordered_json judgement_json(const Judgement& judgement);

}  // namespace shardlens::profiler
