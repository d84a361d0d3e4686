#include "profiler/compare/matching_json.h"

#include <nlohmann/json.hpp>

namespace shardlens::profiler {

nlohmann::ordered_json matching_json(const Matching& matching, const std::string& a,
                                     const std::string& b) {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (const MatchedPlace& row : matching.rows) {
    if (row.changed_bytes() == 0) continue;
    rows.push_back({{"place", row.name},
                    {"category", to_string(row.category)},
                    {"change_bytes", row.growth_bytes()},
                    {a + "_bytes", row.a_bytes},
                    {b + "_bytes", row.b_bytes},
                    {"in_both_bytes", row.in_both_bytes},
                    {a + "_blocks", row.a_count},
                    {b + "_blocks", row.b_count},
                    {"layers", row.layers}});
  }
  return {{"in_both_bytes", matching.in_both_bytes},
          {"only_" + a + "_bytes", matching.only_a_bytes},
          {"only_" + b + "_bytes", matching.only_b_bytes},
          {"rows", std::move(rows)}};
}

}  // namespace shardlens::profiler
