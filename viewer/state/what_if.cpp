#include "viewer/state/what_if.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/limits.h"
#include "base/process/command_line.h"
#include "base/strict_json.h"
#include "profiler/program/pulled_levers.h"
#include "profiler/record/levers/levers.h"

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
  Json json = find_ordered_json(config, kWritten).value_or(nullptr);
  return json.is_object() ? json : Json::object();
}

std::string text_at(const Json& json, std::string_view key, std::string_view usual) {
  const auto at = json.find(key);
  if (at == json.end()) return std::string(usual);
  return at->is_string() ? at->get<std::string>() : at->dump();
}

std::vector<std::string> words_of(const Json& json, const char* key) {
  std::vector<std::string> words;
  for (const Json& word : json.value(key, Json::array())) {
    if (word.is_string()) words.push_back(word.get<std::string>());
  }
  return words;
}

std::vector<std::string> command_of(const Json& json) { return words_of(json, "command"); }

/// Returns the flags of a recording besides those that a control changes or the device decides.
std::vector<std::string> other_flags(const Json& json) {
  constexpr std::array<std::string_view, 3> kOthers = {"--device", "--world", "--rank"};
  const std::vector<std::string> flags = words_of(json, "flags");
  std::vector<std::string> words;
  for (size_t i = 0; i + 1 < flags.size(); i += 2) {
    if (std::ranges::find(kOthers, flags[i]) != kOthers.end()) continue;
    words.insert(words.end(), {flags[i], flags[i + 1]});
  }
  return words;
}

/// The number in a program's arguments whose name says batch: "--batch-size 32" or "bs=32".
struct BatchWord {
  size_t word = 0;   // of the command
  size_t begin = 0;  // of the number in that word
  std::string number;
};

bool is_number(std::string_view text) {
  return !text.empty() && text.size() < 10 &&
         std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

std::optional<BatchWord> batch_word(const std::vector<std::string>& command) {
  for (size_t i = 0; i < command.size(); ++i) {
    const std::string& word = command[i];
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (name.find("batch") == std::string::npos && name != "--bs" && name != "bs") continue;
    if (equals != std::string::npos && is_number(word.substr(equals + 1))) {
      return BatchWord{i, equals + 1, word.substr(equals + 1)};
    }
    const bool has_next = equals == std::string::npos && i + 1 < command.size();
    if (has_next && name.starts_with("-") && is_number(command[i + 1])) {
      return BatchWord{i + 1, 0, command[i + 1]};
    }
  }
  return std::nullopt;
}

bool is_program(const Json& json) { return json.contains("command"); }

/// True if the command starts the ranks itself: then the command says how many there are.
bool has_launcher(const std::vector<std::string>& command) {
  constexpr std::array<std::string_view, 5> kLaunchers = {
      "torchrun", "accelerate", "deepspeed", "torch.distributed.run", "torch.distributed.launch"};
  return std::ranges::any_of(command, [&](const std::string& word) {
    const std::string name = word.substr(word.rfind('/') + 1);
    return std::ranges::find(kLaunchers, name) != kLaunchers.end();
  });
}

/// Returns the value of a control. The number of ranks is `world`, or `workers` if that is 0. It is
/// empty for a control that a program lacks.
std::string control_value(const std::string& config, Control control) {
  const Json json = config_json(config);
  if (is_program(json) && control == Control::batch) {
    const auto word = batch_word(command_of(json));
    return word ? word->number : "";
  }
  const bool is_said_by_program = control != Control::world || has_launcher(command_of(json));
  if (is_program(json) && is_said_by_program) return "";
  const ControlTable& table = table_of(control);
  const std::string text = text_at(json, table.key, table.usual);
  const bool is_of_workers = control == Control::world && text == "0";
  return is_of_workers ? text_at(json, "workers", "1") : text;
}

int64_t number_of(const std::string& text) { return std::strtoll(text.c_str(), nullptr, 10); }

/// Returns the levers that the program was recorded with, and those that are marked.
std::string all_levers_text(const WhatIfEdit& what_if) {
  std::vector<std::string> all = profiler::pulled_levers(what_if.config);
  all.insert(all.end(), what_if.levers.begin(), what_if.levers.end());
  return fmt::format("{}", fmt::join(all, ","));
}

void choose_in_program(Json& json, Control control, const std::string& word) {
  if (control == Control::world) {
    json["world"] = number_of(word);
    json["solo_rank"] = std::min(whole_or(json, "solo_rank", int64_t{0}), number_of(word) - 1);
    return;
  }
  std::vector<std::string> command = command_of(json);
  const auto at = batch_word(command);
  if (!at) return;
  command[at->word].replace(at->begin, std::string::npos, word);
  json["command"] = command;
}

}  // namespace

WhatIfKind what_if_kind_of(const WhatIfEdit& what_if) {
  const Json json = config_json(what_if.config);
  if (is_program(json)) return WhatIfKind::recording;
  return json.empty() ? WhatIfKind::nothing : WhatIfKind::plan;
}

std::string record_line(const WhatIfEdit& what_if) {
  const Json json = config_json(what_if.config);
  const std::string recorded_on = text_at(json, "device", "cuda");
  // A program that ran on a GPU of this machine is recorded on a simulated GPU of the same kind.
  const bool has_name = recorded_on == "cuda" && !what_if.gpu.empty();
  const std::string device = has_name ? "null:" + what_if.gpu : recorded_on;
  std::string line = "shardlens record --device " + shell_word(device);
  const int64_t world = whole_or(json, "world", int64_t{1});
  if (device != "cuda" && world > 1 && !has_launcher(command_of(json))) {
    line += fmt::format(" --world {} --rank {}", world, whole_or(json, "solo_rank", int64_t{0}));
  }
  for (const std::string& word : other_flags(json)) line += " " + shell_word(word);
  const std::string levers = all_levers_text(what_if);
  if (!levers.empty()) line += " --with " + shell_word(levers);
  line += " --";
  for (const std::string& word : command_of(json)) line += " " + shell_word(word);
  return line;
}

void toggle_lever(WhatIfEdit& what_if, const std::string& lever) {
  std::vector<std::string>& marked = what_if.levers;
  if (std::erase(marked, lever) > 0) return;
  const profiler::Lever wanted = profiler::parse_levers(lever).front();
  std::erase_if(marked, [&](const std::string& other) {
    return profiler::contradict(profiler::parse_levers(other).front(), wanted);
  });
  marked.push_back(lever);
}

void mark_lever(WhatIfEdit& what_if, const std::vector<std::string>& rows) {
  if (what_if.lever_row >= rows.size() || rows[what_if.lever_row].empty()) return;
  const std::string& row = rows[what_if.lever_row];
  const std::vector<profiler::Lever> levers = profiler::parse_levers(row);
  if (levers.size() == 1) return toggle_lever(what_if, row);
  what_if.levers.clear();
  for (const profiler::Lever& lever : levers) {
    what_if.levers.push_back(profiler::lever_text(lever));
  }
}

void choose_lever(WhatIfEdit& what_if, const std::vector<std::string>& rows, int direction) {
  const auto count = static_cast<int64_t>(rows.size());
  if (count == 0) return;
  const auto now = static_cast<int64_t>(std::min(what_if.lever_row, rows.size() - 1));
  what_if.lever_row = static_cast<size_t>((now + direction + count) % count);
}

std::string_view control_effect(Control control) {
  static constexpr std::array<std::string_view, kControls> kEffects = {
      "activations grow with it; parameters, gradients and the optimizer's state do not",
      "fsdp cuts the state into this many shards; gathered weights and activations stay",
      "microbatches per step: activations are kept for one at a time, gradients are summed",
      "single and ddp keep all state on every rank, fsdp a shard",
      "true frees gathered weights after forward and gathers them again for backward",
      "16 bits halve gathered weights and activations; shards stay in fp32",
      "the buffers in which gradients are reduced",
      "what the host holds instead of the device, at the cost of transfer time",
      "activations are computed again in backward instead of being kept",
      "what is gathered together: a block at a time, or the whole model"};
  return kEffects[static_cast<size_t>(control)];
}

Choices choices_of(const WhatIfEdit& what_if, Control control) {
  const ControlTable& table = table_of(control);
  const std::string now = control_value(what_if.config, control);
  Choices choices{.words = {}, .chosen = 0, .is_number = table.most > 0};
  if (now.empty()) return choices;
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

void choose(WhatIfEdit& what_if, Control control, size_t choice) {
  const Choices choices = choices_of(what_if, control);
  if (choices.words.empty()) return;
  const std::string& word = choices.words[std::min(choice, choices.words.size() - 1)];
  Json json = config_json(what_if.config);
  if (is_program(json)) {
    choose_in_program(json, control, word);
    what_if.config = json.dump();
    return;
  }
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

void turn(WhatIfEdit& what_if, Control control, int direction) {
  const Choices choices = choices_of(what_if, control);
  const auto count = static_cast<int64_t>(choices.words.size());
  if (count == 0) return;
  const int64_t next = static_cast<int64_t>(choices.chosen) + direction;
  const int64_t choice =
      choices.is_number ? std::clamp<int64_t>(next, 0, count - 1) : (next + count) % count;
  if (choice != static_cast<int64_t>(choices.chosen)) {
    choose(what_if, control, static_cast<size_t>(choice));
  }
}

WhatIfEdit what_if_of(const PlanRequest& request) {
  return {.of = request.name, .base = request.config, .config = request.config, .gpu = request.gpu};
}

PlanRequest request_of(const WhatIfEdit& what_if) {
  std::string changes;
  for (int i = 0; i < kControls; ++i) {
    const auto control = static_cast<Control>(i);
    const std::string now = control_value(what_if.config, control);
    if (now == control_value(what_if.base, control)) continue;
    const std::string name =
        control == Control::world ? "W" : std::string(kWords<Control>[static_cast<size_t>(i)]);
    changes += fmt::format("{}{} {}", changes.empty() ? "" : ", ", name, now);
  }
  return {.name = changes.empty() ? what_if.of + " as planned" : what_if.of + ": " + changes,
          .config = what_if.config,
          .gpu = what_if.gpu};
}

}  // namespace shardlens::viewer
