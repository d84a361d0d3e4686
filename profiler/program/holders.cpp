#include "profiler/program/holders.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/shown.h"
#include "base/strict_json.h"
#include "base/units.h"

namespace shardlens::profiler {

namespace {

constexpr size_t kMostHolders = 100;

double number_in(const nlohmann::json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

std::string count_text(double tensors) {
  const bool is_whole = std::abs(tensors - std::round(tensors)) < 0.05;
  return is_whole ? fmt::format("{:.0f}", tensors) : fmt::format("{:.1f}", tensors);
}

}  // namespace

std::vector<HoldingVariable> read_holders(const nlohmann::json& list) {
  std::vector<HoldingVariable> holders;
  if (!list.is_array()) return holders;
  for (const nlohmann::json& one : list) {
    if (holders.size() == kMostHolders) break;
    const std::string variable = text_in(one, "variable").value_or("");
    if (variable.empty()) continue;
    const double per_step = number_in(one, "tensors_per_step");
    holders.push_back({.variable = variable,
                       .where = text_in(one, "where").value_or(""),
                       .container = text_in(one, "container").value_or(""),
                       .tensors = whole_in(one, "tensors").value_or(0),
                       .tensor_bytes = whole_in(one, "tensor_bytes").value_or(0),
                       .tensors_per_step = per_step > 0 ? std::optional(per_step) : std::nullopt,
                       .has_graph = one.value("has_graph", nlohmann::json()) == true});
  }
  return holders;
}

nlohmann::json holders_json(const std::vector<HoldingVariable>& holders) {
  nlohmann::json list = nlohmann::json::array();
  for (const HoldingVariable& one : holders) {
    list.push_back({{"variable", one.variable},
                    {"where", one.where},
                    {"container", one.container},
                    {"tensors", one.tensors},
                    {"tensor_bytes", one.tensor_bytes},
                    {"tensors_per_step", nullptr},
                    {"has_graph", one.has_graph}});
    if (one.tensors_per_step) list.back()["tensors_per_step"] = *one.tensors_per_step;
  }
  return list;
}

std::string holder_text(const HoldingVariable& holder) {
  const double count = holder.tensors_per_step.value_or(static_cast<double>(holder.tensors));
  const std::string number = count_text(count);
  std::string text =
      fmt::format("{}, a {} in {}: {} {} of {}", shown(holder.variable), shown(holder.container),
                  shown(holder.where), number, number == "1" ? "tensor" : "tensors",
                  bytes_text(holder.tensor_bytes));
  if (holder.tensors_per_step) text += " a step";
  if (holder.has_graph) text += ", with the graph that made it";
  return text;
}

}  // namespace shardlens::profiler
