#include "profiler/record/advice/program_uses.h"

#include <nlohmann/json.hpp>

#include "base/strict_json.h"

namespace shardlens::profiler {

namespace {

using Json = nlohmann::json;

bool flag_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && *found == true;
}

Json list_in(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_array() ? *found : Json::array();
}

void read_lines(const Json& json, ProgramUses& uses) {
  if (!json.is_object()) return;
  for (const auto& [what, lines] : json.items()) {
    std::vector<std::string>& known = uses.lines[what];
    if (!lines.is_array()) continue;
    for (const Json& line : lines) {
      if (line.is_string()) known.push_back(line.get<std::string>());
    }
  }
}

}  // namespace

std::string ProgramUses::line_of(std::string_view what) const {
  const auto found = lines.find(what);
  return found == lines.end() || found->second.empty() ? "" : found->second.front();
}

ProgramUses read_program_uses(const Json& json) {
  if (!json.is_object() || !json.contains("lines")) return {};
  ProgramUses uses{
      .fsdp_units =
          whole_in(json, "fsdp2_units").value_or(0) + whole_in(json, "fsdp1_units").value_or(0),
      .cuda_graphs = whole_in(json, "cuda_graph_captures").value_or(0),
      .cuda_graph_pools = whole_in(json, "cuda_graph_pools").value_or(0),
      .graphed_callable_pools = whole_in(json, "graphed_callable_pools").value_or(0),
      .unstepped_gradients = whole_in(json, "unstepped_gradients").value_or(0),
      .unstepped_gradient_bytes = whole_in(json, "unstepped_gradient_bytes").value_or(0),
      .largest_unstepped = text_in(json, "largest_unstepped").value_or(""),
      .evaluation_peak_bytes = whole_in(json, "evaluation_peak_bytes").value_or(0),
      .evaluates_at_end = flag_in(json, "evaluates_at_end"),
      .has_expandable_segments = flag_in(json, "expandable_segments"),
      .is_compiled = flag_in(json, "compile"),
      .accumulates = flag_in(json, "accumulates_gradients"),
      .names_fsdp = flag_in(json, "names_fsdp"),
      .is_known = true};
  read_lines(json["lines"], uses);
  for (const Json& one : list_in(json, "optimizers")) {
    if (!one.is_object()) continue;
    uses.optimizers.push_back({.name = text_in(one, "name").value_or(""),
                               .line = text_in(one, "line").value_or(""),
                               .has_low_bits = flag_in(one, "low_bit")});
  }
  for (const Json& size : list_in(json, "vocabularies")) {
    if (size.is_number_integer()) uses.vocabularies.push_back(size.get<int64_t>());
  }
  return uses;
}

}  // namespace shardlens::profiler
