#include "profiler/report/judgement_json.h"

#include <nlohmann/json.hpp>

namespace shardlens::profiler {

nlohmann::ordered_json judgement_json(const Judgement& judgement) {
  using Json = nlohmann::ordered_json;
  const bool is_missing = judgement.missing_from_ns >= 0;
  return {{"state", to_string(judgement.state)},
          {"peak", to_string(judgement.bound())},
          {"begins_late", judgement.begins_late},
          {"lost_events", judgement.lost_events},
          {"missing_from_ns", is_missing ? Json(judgement.missing_from_ns) : Json(nullptr)},
          {"faults", judgement.faults}};
}

}  // namespace shardlens::profiler
