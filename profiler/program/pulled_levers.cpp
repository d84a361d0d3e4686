#include "profiler/program/pulled_levers.h"

#include "base/strict_json.h"

namespace shardlens::profiler {

std::vector<std::string> pulled_levers(const std::string& config) {
  const auto json = find_json(config);
  if (!json || !json->is_object()) return {};
  const auto levers = json->find("levers");
  if (levers == json->end() || !levers->is_object()) return {};
  std::vector<std::string> pulled;
  for (const auto& [name, value] : levers->items()) {
    const bool has_value = value.is_string() && !value.get<std::string>().empty();
    pulled.push_back(has_value ? name + "=" + value.get<std::string>() : name);
  }
  return pulled;
}

std::string pulled_levers_text(const std::string& config) {
  std::string text;
  for (const std::string& lever : pulled_levers(config)) text += (text.empty() ? "" : ",") + lever;
  return text;
}

}  // namespace shardlens::profiler
