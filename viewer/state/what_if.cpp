#include "viewer/state/what_if.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "input/limits.h"
#include "input/strict_json.h"

namespace shardlens::viewer {

namespace {

using Json = nlohmann::ordered_json;

struct ControlTable {
  std::string_view key;                 // of config.json
  std::string_view usual;               // if the configuration has no such key
  std::vector<std::string_view> words;  // or
  int64_t most = 0;                     // the choices are the powers of two up to it
};

const ControlTable& table_of(Control control) {
  static const std::array<ControlTable, kControls> kTables = {{
      {"batch", "64", {}, 4096},
      {"world", "1", {}, 1024},
      {"accumulate", "1", {}, 64},
      {"strategy", "fsdp", {"single", "ddp", "fsdp"}},
      {"reshard_after_forward", "auto", {"auto", "true", "false"}},
      {"param_dtype", "fp32", {"fp32", "bf16", "fp16"}},
      {"reduce_dtype", "fp32", {"fp32", "bf16", "fp16"}},
      {"offload", "none", {"none", "params", "optimizer", "all"}},
      {"recompute", "none", {"none", "every:4", "every:2", "full"}},
      {"wrap", "block", {"block", "root"}},
  }};
  return kTables[static_cast<size_t>(control)];
}

Json config_json(const std::string& config) {
  Json json = input::find_ordered_json(config, input::kWritten).value_or(nullptr);
  return json.is_object() ? json : Json::object();
}

std::string text_at(const Json& json, std::string_view key, std::string_view usual) {
  const auto at = json.find(key);
  if (at == json.end()) return std::string(usual);
  return at->is_string() ? at->get<std::string>() : at->dump();
}

/// Returns the value of a control. The ranks are `world`, or as many as `workers` if that is 0.
std::string control_value(const std::string& config, Control control) {
  const Json json = config_json(config);
  const ControlTable& table = table_of(control);
  const std::string text = text_at(json, table.key, table.usual);
  const bool is_of_workers = control == Control::world && text == "0";
  return is_of_workers ? text_at(json, "workers", "1") : text;
}

int64_t number_of(const std::string& text) { return std::strtoll(text.c_str(), nullptr, 10); }

}  // namespace

Choices choices_of(const WhatIf& what_if, Control control) {
  const ControlTable& table = table_of(control);
  const std::string now = control_value(what_if.config, control);
  Choices choices{.words = {}, .chosen = 0, .is_number = table.most > 0};
  for (int64_t number = 1; number <= table.most; number *= 2) {
    choices.words.push_back(std::to_string(number));
  }
  choices.words.insert(choices.words.end(), table.words.begin(), table.words.end());
  if (std::ranges::find(choices.words, now) == choices.words.end()) choices.words.push_back(now);
  if (choices.is_number) std::ranges::stable_sort(choices.words, {}, number_of);
  choices.chosen =
      static_cast<size_t>(std::ranges::find(choices.words, now) - choices.words.begin());
  return choices;
}

void choose(WhatIf& what_if, Control control, size_t choice) {
  const Choices choices = choices_of(what_if, control);
  const std::string& word = choices.words[std::min(choice, choices.words.size() - 1)];
  Json json = config_json(what_if.config);
  const std::string key(table_of(control).key);
  if (!choices.is_number) {
    json[key] = word;
  } else {
    json[key] = number_of(word);
  }
  if (control == Control::world) {
    // One rank stands for all, since a plan runs none of them.
    json["workers"] = number_of(word);
    json["solo_rank"] = -1;
  }
  what_if.config = json.dump();
}

void turn(WhatIf& what_if, Control control, int direction) {
  const Choices choices = choices_of(what_if, control);
  const auto count = static_cast<int64_t>(choices.words.size());
  const int64_t next = static_cast<int64_t>(choices.chosen) + direction;
  const int64_t choice =
      choices.is_number ? std::clamp<int64_t>(next, 0, count - 1) : (next + count) % count;
  if (choice != static_cast<int64_t>(choices.chosen)) {
    choose(what_if, control, static_cast<size_t>(choice));
  }
}

WhatIf what_if_of(const PlanRequest& request) {
  return {.of = request.name, .base = request.config, .config = request.config, .gpu = request.gpu};
}

PlanRequest request_of(const WhatIf& what_if) {
  std::string changes;
  for (int i = 0; i < kControls; ++i) {
    const auto control = static_cast<Control>(i);
    const std::string now = control_value(what_if.config, control);
    if (now == control_value(what_if.base, control)) continue;
    const std::string name =
        control == Control::world ? "W" : std::string(kControlNames[static_cast<size_t>(i)]);
    changes += fmt::format("{}{} {}", changes.empty() ? "" : ", ", name, now);
  }
  return {.name = changes.empty() ? what_if.of + " as planned" : what_if.of + ": " + changes,
          .config = what_if.config,
          .gpu = what_if.gpu};
}

}  // namespace shardlens::viewer
