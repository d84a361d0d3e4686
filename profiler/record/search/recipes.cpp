#include "profiler/record/search/recipes.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "profiler/record/search/placeholders.h"
#include "profiler/record/search/split_flags.h"
#include "profiler/record/search/variants.h"

namespace shardlens::profiler {

namespace {

using Tree = nlohmann::json;
using KeyValue = std::pair<std::string, std::string>;  // a key and its value; empty: without it

constexpr double kMostRecipes = 10'000;
constexpr const char* kFlagless = "true";

/// Returns a value as it is written on a command line; empty for what leaves the flag out.
std::string value_text(const Tree& value) {
  if (value.is_null() || value == false) return {};
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return kFlagless;
  if (value.is_number()) return value.dump();
  throw std::invalid_argument("give a word, a number, true, null, or a list of these");
}

std::vector<std::string> values_in(const Tree& value) {
  if (!value.is_array()) return {value_text(value)};
  std::vector<std::string> values;
  for (const Tree& one : value) values.push_back(value_text(one));
  if (values.empty()) {
    throw std::invalid_argument("the list is empty; give values, or leave the key out");
  }
  return values;
}

/// Splits a command at spaces.
std::vector<std::string> command_words(const Tree& command) {
  if (command.is_array() && !command.empty()) return values_in(command);
  if (!command.is_string() || command.get<std::string>().empty()) {
    throw std::invalid_argument("give the program's words, such as python train.py");
  }
  const auto text = command.get<std::string>();
  if (text.find_first_of("'\"\\$") != std::string::npos) {
    throw std::invalid_argument(
        "it has quotes, \\ or $, which no shell reads here; give a list of words");
  }
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

/// Holds one recipe's keys, with those that all recipes share.
class RecipeKeys {
 public:
  RecipeKeys(const Tree& shared, const std::string& name, const Tree& own) : name_(name) {
    if (!own.is_object()) refuse("", "give its command and flags as keys");
    for (const Tree* keys : {&shared, &own}) {
      for (const auto& [key, value] : keys->items()) {
        if (key != "recipes") keys_[key] = value;
      }
    }
    if (!keys_.contains("command")) refuse("command", "give the program's words");
    command_ = read("command", command_words);
    keys_.erase("command");
    for (const std::string& place : placeholders_in(command_)) {
      if (!keys_.contains(place))
        refuse(place, "the command has this placeholder; give its values");
      places_.insert(place);
    }
    for (const auto& [key, value] : keys_.items()) lists_.emplace_back(key, read(key, values_in));
  }

  /// Adds each combination.
  void add_to(std::vector<Recipe>& recipes, const std::string& out) const {
    double runs = 1;
    for (const auto& [key, values] : lists_) runs *= static_cast<double>(values.size());
    if (static_cast<double>(recipes.size()) + runs > kMostRecipes) {
      refuse("", fmt::format("the file has more than {} runs; shorten its lists", kMostRecipes));
    }
    for (const auto& chosen : combinations_of(lists_)) recipes.push_back(recipe_of(out, chosen));
  }

 private:
  template <typename Read>
  std::vector<std::string> read(const std::string& key, Read read_value) const {
    try {
      return read_value(keys_[key]);
    } catch (const std::invalid_argument& error) {
      refuse(key, error.what());
    }
  }

  [[noreturn]] void refuse(const std::string& key, const std::string& why) const {
    throw std::invalid_argument(
        fmt::format("recipe {}: {}{}{}", name_, key, key.empty() ? "" : ": ", why));
  }

  Recipe recipe_of(const std::string& out, const std::vector<KeyValue>& chosen) const {
    std::vector<std::string> flags, command = command_;
    std::string name = name_;
    for (size_t i = 0; i < chosen.size(); ++i) {
      const auto& [key, value] = chosen[i];
      const bool is_place = places_.contains(key);
      if (is_place) {
        command = with_text(std::move(command), key, value);
      } else if (!value.empty()) {
        flags.push_back("--" + key);
        if (value != kFlagless) flags.push_back(value);
      }
      const bool varies = lists_[i].second.size() > 1;
      if (varies) name += fmt::format(",{}={}", key, value.empty() ? "none" : value);
    }
    flags.insert(flags.end(), {"--out", out, "--"});
    flags.insert(flags.end(), command.begin(), command.end());
    try {
      return {.name = name, .options = parse_simulated("matrix", flags)};
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(fmt::format("recipe {}: {}", name, error.what()));
    }
  }

  std::string name_;
  Tree keys_ = Tree::object();
  std::vector<std::string> command_;
  std::set<std::string> places_;
  std::vector<std::pair<std::string, std::vector<std::string>>> lists_;
};

}  // namespace

std::vector<Recipe> recipes_of(const nlohmann::json& document, const std::string& out) {
  const auto recipes = document.find("recipes");
  if (recipes == document.end() || !recipes->is_object() || recipes->empty()) {
    throw std::invalid_argument(
        "it has no recipes; give recipes: with a name, a command and flags of each");
  }
  std::vector<Recipe> all;
  for (const auto& [name, own] : recipes->items()) {
    RecipeKeys(document, name, own).add_to(all, out);
  }
  std::set<std::string> folders;
  for (const Recipe& one : all) {
    if (folders.insert(folder_of(one.name)).second) continue;
    throw std::invalid_argument(
        fmt::format("recipe {}: another run has the same name; remove one", one.name));
  }
  return all;
}

}  // namespace shardlens::profiler
