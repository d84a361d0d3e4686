#include "viewer/state/session.h"

#include <fmt/format.h>

#include <algorithm>
#include <concepts>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/input_file.h"
#include "base/limits.h"
#include "base/output_file.h"
#include "base/process/command_line.h"
#include "base/shown.h"
#include "base/strict_json.h"
#include "profiler/record/levers/levers.h"

namespace shardlens::viewer {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::string_view kSchema = "shardlens.session/1";

template <ClosedChoice Choice>
Choice value_of(const Json& json, const char* key, Choice otherwise) {
  const auto at = json.find(key);
  if (at == json.end()) return otherwise;
  const auto text = at->template get<std::string>();
  if (const std::optional<Choice> value = choice_named<Choice>(text)) return *value;
  throw std::invalid_argument(
      fmt::format("{}: {}: not one of {}", key, shown(text), fmt::join(kWords<Choice>, ", ")));
}

Json range_json(const std::optional<Range>& range) {
  return range ? Json::array({range->begin, range->end}) : Json(nullptr);
}

std::optional<Range> range_of(const Json& json, const char* key) {
  const auto at = json.find(key);
  if (at == json.end() || at->is_null()) return std::nullopt;
  const Range range{at->at(0).get<double>(), at->at(1).get<double>()};
  if (!(range.begin < range.end)) {
    throw std::invalid_argument(fmt::format("{}: its end is not after its beginning", key));
  }
  return range;
}

/// Returns the shown part of the y axes: the whole axes if the session has none inside them.
Range heights_of(const Json& json) {
  const Range all = ViewState().heights;
  const Range heights = range_of(json, "heights").value_or(all);
  return heights.begin >= 0 && heights.end <= 1 ? heights : all;
}

template <typename T>
std::optional<T> optional_of(const Json& json, const char* key) {
  const auto at = json.find(key);
  if (at == json.end() || at->is_null()) return std::nullopt;
  if constexpr (std::integral<T>) return whole_of<T>(*at);
  return at->template get<T>();
}

template <typename T>
Json optional_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json panels_json(const Panels& panels) {
  return {{"alive", panels.alive},     {"table", panels.table}, {"minimap", panels.minimap},
          {"ribbon", panels.ribbon},   {"steps", panels.steps}, {"reserved", panels.reserved},
          {"hatches", panels.hatches}, {"plans", panels.plans}, {"treemap", panels.treemap},
          {"events", panels.events},   {"why", panels.why}};
}

Panels panels_of(const Json& json) {
  const Panels usual;
  return {.alive = json.value("alive", usual.alive),
          .table = json.value("table", usual.table),
          .minimap = json.value("minimap", usual.minimap),
          .ribbon = json.value("ribbon", usual.ribbon),
          .steps = json.value("steps", usual.steps),
          .reserved = json.value("reserved", usual.reserved),
          .hatches = json.value("hatches", usual.hatches),
          .plans = json.value("plans", usual.plans),
          .treemap = json.value("treemap", usual.treemap),
          .events = json.value("events", usual.events),
          .why = json.value("why", usual.why)};
}

/// Returns the path as a session stores it: relative, unless it climbs out of the session's folder
/// by more than one level.
std::string stored_path(const std::string& path, const std::string& folder) {
  const fs::path relative = fs::absolute(path).lexically_relative(fs::absolute(folder));
  const bool is_far = relative.empty() || relative.string().starts_with("../..");
  return is_far ? fs::absolute(path).lexically_normal().string() : relative.string();
}

std::string opened_path(const std::string& stored, const std::string& folder) {
  const fs::path path(stored);
  return path.is_absolute() ? stored : (fs::absolute(folder) / path).lexically_normal().string();
}

Json paths_json(const std::vector<std::string>& paths, const std::string& folder) {
  Json stored = Json::array();
  for (const std::string& path : paths) stored.push_back(stored_path(path, folder));
  return stored;
}

std::vector<std::string> paths_of(const Json& json, const char* key, const std::string& folder) {
  std::vector<std::string> paths;
  for (const Json& path : json.value(key, Json::array())) {
    paths.push_back(opened_path(path.get<std::string>(), folder));
  }
  return paths;
}

Json plans_json(const std::vector<PlanRequest>& plans) {
  Json all = Json::array();
  for (const PlanRequest& plan : plans) {
    all.push_back({{"name", plan.name}, {"config", plan.config}, {"gpu", plan.gpu}});
  }
  return all;
}

std::vector<PlanRequest> plans_of(const Json& json) {
  std::vector<PlanRequest> plans;
  for (const Json& plan : json.value("plans", Json::array())) {
    plans.push_back({.name = plan.at("name").get<std::string>(),
                     .config = plan.at("config").get<std::string>(),
                     .gpu = plan.at("gpu").get<std::string>()});
  }
  return plans;
}

/// Returns a run's key as it is stored: a path, or the name of a plan that the session makes.
template <typename Path>
std::string key_in_session(const std::string& key, const std::vector<PlanRequest>& plans,
                           const Path& path) {
  const bool is_plan = std::ranges::find(plans, key, &PlanRequest::name) != plans.end();
  return is_plan ? key : path(key);
}

Json lanes_json(const ViewState& state, const std::string& folder) {
  const auto stored = [&](const std::string& key) {
    return key_in_session(key, state.plans,
                          [&](const std::string& path) { return stored_path(path, folder); });
  };
  const Lanes& lanes = state.lanes;
  Json folded = Json::array();
  for (const std::string& key : lanes.folded) folded.push_back(stored(key));
  Json names = Json::array();
  for (const LaneName& one : lanes.names) {
    names.push_back({{"run", stored(one.run)}, {"name", one.name}});
  }
  return {{"sort", to_string(lanes.sort)},
          {"first", lanes.first},
          {"first_rank", lanes.first_rank},
          {"folded", folded},
          {"closed", paths_json(lanes.closed, folder)},
          {"names", names}};
}

Lanes lanes_of(const Json& json, const std::vector<PlanRequest>& plans, const std::string& folder) {
  const auto opened = [&](const std::string& key) {
    return key_in_session(key, plans,
                          [&](const std::string& path) { return opened_path(path, folder); });
  };
  const Lanes usual;
  Lanes lanes{.sort = value_of(json, "sort", usual.sort),
              .first = whole_or(json, "first", usual.first),
              .first_rank = whole_or(json, "first_rank", usual.first_rank),
              .folded = {},
              .closed = paths_of(json, "closed", folder),
              .names = {}};
  for (const Json& key : json.value("folded", Json::array())) {
    lanes.folded.push_back(opened(key.get<std::string>()));
  }
  for (const Json& one : json.value("names", Json::array())) {
    lanes.names.push_back(
        {opened(one.at("run").get<std::string>()), one.at("name").get<std::string>()});
  }
  return lanes;
}

Json overview_json(const Overview& overview) {
  return {
      {"open", overview.is_open}, {"sort", to_string(overview.sort)}, {"first", overview.first}};
}

Overview overview_of(const Json& json) {
  const Overview usual;
  return {.is_open = json.value("open", usual.is_open),
          .sort = value_of(json, "sort", usual.sort),
          .first = whole_or(json, "first", usual.first)};
}

Json pick_json(const std::optional<Pick>& pick) {
  if (!pick) return nullptr;
  return {{"run", pick->run},
          {"rank", pick->rank},
          {"scope", to_string(pick->scope)},
          {"block", pick->block},
          {"category", to_string(pick->category)},
          {"path", pick->path},
          {"call", optional_json(pick->call)}};
}

std::optional<Pick> pick_of(const Json& json) {
  const auto at = json.find("pick");
  if (at == json.end() || at->is_null()) return std::nullopt;
  const Pick usual;
  return Pick{.run = at->value("run", usual.run),
              .rank = at->value("rank", usual.rank),
              .scope = value_of(*at, "scope", usual.scope),
              .block = at->value("block", usual.block),
              .category = value_of(*at, "category", usual.category),
              .path = at->value("path", usual.path),
              .call = optional_of<size_t>(*at, "call")};
}

Json tree_json(const TreeView& tree) {
  return {{"open", tree.is_open},         {"of", to_string(tree.of)},
          {"form", to_string(tree.form)}, {"by", to_string(tree.by)},
          {"from", to_string(tree.from)}, {"sort", to_string(tree.sort)},
          {"compares", tree.compares},    {"threshold", tree.threshold},
          {"first", tree.first},          {"zoom", tree.zoom}};
}

TreeView tree_of(const Json& json) {
  const TreeView usual;
  return {.is_open = json.value("open", usual.is_open),
          .of = value_of(json, "of", usual.of),
          .form = value_of(json, "form", usual.form),
          .by = value_of(json, "by", usual.by),
          .from = value_of(json, "from", usual.from),
          .sort = value_of(json, "sort", usual.sort),
          .compares = json.value("compares", usual.compares),
          .threshold =
              std::min(whole_or(json, "threshold", usual.threshold), kTreeThresholds.size() - 1),
          .first = whole_or(json, "first", usual.first),
          .zoom = json.value("zoom", usual.zoom)};
}

Json what_if_json(const std::optional<WhatIfEdit>& what_if, const std::string& folder) {
  if (!what_if) return nullptr;
  const std::string& recording = what_if->recording;
  return {{"of", what_if->of},
          {"base", what_if->base},
          {"config", what_if->config},
          {"gpu", what_if->gpu},
          {"recording", recording.empty() ? "" : stored_path(recording, folder)},
          {"levers", what_if->levers},
          {"lever_row", what_if->lever_row}};
}

std::optional<WhatIfEdit> what_if_of_session(const Json& json, const std::string& folder) {
  const auto at = json.find("what_if");
  if (at == json.end() || at->is_null()) return std::nullopt;
  WhatIfEdit what_if{.of = at->at("of").get<std::string>(),
                     .base = at->at("base").get<std::string>(),
                     .config = at->at("config").get<std::string>(),
                     .gpu = at->at("gpu").get<std::string>()};
  const std::string recording = at->value("recording", "");
  if (!recording.empty()) what_if.recording = opened_path(recording, folder);
  for (const Json& lever : at->value("levers", Json::array())) {
    const auto text = lever.get<std::string>();
    profiler::parse_levers(text);  // throws
    toggle_lever(what_if, text);
  }
  what_if.lever_row = whole_or(*at, "lever_row", size_t{0});
  return what_if;
}

Json json_of(const ViewState& state, const std::string& folder) {
  Json notes = Json::array();
  for (const Note& note : state.notes) {
    notes.push_back({{"x", note.x}, {"text", note.text}, {"alignment", to_string(note.alignment)}});
  }
  return {{"schema", kSchema},
          {"files", paths_json(state.files, folder)},
          {"alignment", to_string(state.alignment)},
          {"layout", to_string(state.layout)},
          {"height", to_string(state.height)},
          {"theme", to_string(state.theme)},
          {"ranks", to_string(state.ranks)},
          {"detail", to_string(state.detail)},
          {"at", to_string(state.at)},
          {"memory", to_string(state.memory)},
          {"clock", to_string(state.clock)},
          {"grouping", to_string(state.grouping)},
          {"panels", panels_json(state.panels)},
          {"lanes", lanes_json(state, folder)},
          {"overview", overview_json(state.overview)},
          {"baseline", state.baseline},
          {"earlier_baselines", state.earlier_baselines},
          {"focus", state.focus},
          {"rank", optional_json(state.rank)},
          {"view", range_json(state.view)},
          {"heights", range_json(state.heights)},
          {"cursor", optional_json(state.cursor)},
          {"selection", range_json(state.selection)},
          {"hidden_categories", state.hidden_categories},
          {"alive_first", state.alive_first},
          {"places_first", state.places_first},
          {"table_first", state.table_first},
          {"zoom", state.zoom},
          {"front", to_string(state.front)},
          {"search", state.search},
          {"notes", notes},
          {"pick", pick_json(state.pick)},
          {"tree", tree_json(state.tree)},
          {"plans", plans_json(state.plans)},
          {"what_if", what_if_json(state.what_if, folder)}};
}

ViewState state_of(const Json& json, const std::string& folder) {
  const ViewState usual;
  ViewState state;
  json.at("files");  // throws if there are none
  state.files = paths_of(json, "files", folder);
  state.alignment = value_of(json, "alignment", usual.alignment);
  state.layout = value_of(json, "layout", usual.layout);
  state.height = value_of(json, "height", usual.height);
  state.theme = value_of(json, "theme", usual.theme);
  state.ranks = value_of(json, "ranks", usual.ranks);
  state.detail = value_of(json, "detail", usual.detail);
  state.at = value_of(json, "at", usual.at);
  state.memory = value_of(json, "memory", usual.memory);
  state.clock = value_of(json, "clock", usual.clock);
  state.grouping = value_of(json, "grouping", usual.grouping);
  if (json.contains("panels")) state.panels = panels_of(json.at("panels"));
  state.baseline = whole_or(json, "baseline", usual.baseline);
  for (const Json& baseline : json.value("earlier_baselines", Json::array())) {
    state.earlier_baselines.push_back(whole_of<size_t>(baseline));
  }
  state.focus = whole_or(json, "focus", usual.focus);
  state.rank = optional_of<size_t>(json, "rank");
  state.view = range_of(json, "view");
  state.heights = heights_of(json);
  state.cursor = optional_of<double>(json, "cursor");
  state.selection = range_of(json, "selection");
  state.hidden_categories = whole_or(json, "hidden_categories", usual.hidden_categories);
  state.alive_first = whole_or(json, "alive_first", usual.alive_first);
  state.places_first = whole_or(json, "places_first", usual.places_first);
  state.table_first = whole_or(json, "table_first", usual.table_first);
  state.zoom = std::clamp(json.value("zoom", usual.zoom), 0.25, 8.0);
  state.front = value_of(json, "front", usual.front);
  state.search = json.value("search", usual.search);
  state.pick = pick_of(json);
  if (json.contains("tree")) state.tree = tree_of(json.at("tree"));
  state.plans = plans_of(json);
  if (json.contains("overview")) state.overview = overview_of(json.at("overview"));
  if (json.contains("lanes")) state.lanes = lanes_of(json.at("lanes"), state.plans, folder);
  state.what_if = what_if_of_session(json, folder);
  for (const Json& note : json.value("notes", Json::array())) {
    state.notes.push_back({note.at("x").get<double>(), note.at("text").get<std::string>(),
                           value_of(note, "alignment", state.alignment)});
  }
  return state;
}

}  // namespace

std::string session_text(const ViewState& state, const std::string& folder) {
  // Text that is not UTF-8 (a pasted note) must not keep a session from being saved.
  return json_text(json_of(state, folder));
}

ViewState parse_session(const std::string& text, const std::string& folder) {
  try {
    const Json json = find_json(text, kDescription).value_or(nullptr);
    if (text_in(json, "schema") != kSchema) {
      throw std::invalid_argument("it is not a session; save one with Ctrl+S");
    }
    return state_of(json, folder);
  } catch (const Json::exception&) {
    throw std::invalid_argument("it is not a session, or it is damaged; save one with Ctrl+S");
  }
}

void save_session(const ViewState& state, const std::string& path) {
  const fs::path target = fs::absolute(path);
  const std::string text = session_text(state, target.parent_path().string());
  try {
    write_text(target.string(), text);
  } catch (const std::exception&) {
    throw std::runtime_error(
        fmt::format("{}: cannot write this session; choose a folder that can be written", path));
  }
}

std::string link_to(const std::string& path) {
  return "shardlens view --session " + shell_word(fs::absolute(path).lexically_normal().string());
}

ViewState load_session(const std::string& path) {
  const std::string text =
      read_file(path, kDescription.bytes, "give a session, which Ctrl+S in the viewer saves");
  try {
    return parse_session(text, fs::absolute(path).parent_path().string());
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("{}: {}", path, error.what()));
  }
}

}  // namespace shardlens::viewer
