#include "profiler/exchange/place_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>

namespace shardlens::profiler {

namespace {

/// Returns the text with everything replaced that is not UTF-8.
std::string utf8(const std::string& text) {
  using Json = nlohmann::json;
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace))
      .get<std::string>();
}

/// Returns the kind of an action with its unit, or with its group if it has no unit.
std::string name_of_action(const std::string& line) {
  std::istringstream fields(line);
  std::string kind;
  std::string group;
  fields >> kind;
  for (std::string field; fields >> field;) {
    if (field.starts_with("unit=")) return kind + " " + field.substr(field.find('=') + 1);
    if (field.starts_with("group")) group = " " + field.substr(field.find('=') + 1);
  }
  return kind + group;
}

}  // namespace

void Place::take(const Event& event) {
  if (event.kind == EventKind::phase) phase = static_cast<Phase>(event.value);
  if (event.kind == EventKind::step) step = event.value;
  action = event.kind == EventKind::action_end ? -1 : std::max(event.action, -1);
}

PlaceNames::Names::Names(const std::string& schedule) : actions(schedule) {
  for (const std::string& line : actions.lines()) names.push_back(utf8(name_of_action(line)));
}

PlaceNames::PlaceNames(const Header& header) : train_(header.train), evaluate_(header.evaluate) {
  for (int32_t i = 0; i < kProgramParts; ++i) {
    const auto part = program_part(header, i);
    if (part) parts_[static_cast<size_t>(i)] = to_string(*part);
  }
}

std::string PlaceNames::action(Phase phase, int32_t id) const {
  if (id < 0) return {};
  const Names& known = phase == Phase::evaluating ? evaluate_ : train_;
  if (const auto index = known.actions.index_of(id)) return known.names[*index];
  const bool is_part = id < kProgramParts && !parts_[static_cast<size_t>(id)].empty();
  return is_part ? parts_[static_cast<size_t>(id)] : fmt::format("action {}", id);
}

std::string PlaceNames::place(const Place& place) const {
  std::string text(to_string(place.phase));
  if (place.phase == Phase::training && place.step >= 0) text = fmt::format("step {}", place.step);
  const std::string name = action(place.phase, place.action);
  return name.empty() ? text : text + ", " + name;
}

std::string label_text(const std::vector<std::string>& strings, uint32_t label) {
  return label < strings.size() ? utf8(strings[label]) : fmt::format("string {}", label);
}

}  // namespace shardlens::profiler
