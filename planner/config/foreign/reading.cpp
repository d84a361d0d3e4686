#include "planner/config/foreign/reading.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "base/check.h"
#include "base/nearest.h"
#include "planner/config/options.h"

namespace shardlens::planner {

namespace {

using Json = nlohmann::json;

constexpr std::string_view kSection = ".*";

// These limits keep the product of two counts, or of a count and the ranks, in 64 bits.
constexpr double kMostCount = int64_t{1} << 31;
constexpr int64_t kMostRanks = int64_t{1} << 20;

std::string_view plain_name(std::string_view name) {
  if (name.ends_with(kSection)) name.remove_suffix(kSection.size());
  return name;
}

const Option& option_named(std::string_view name) {
  for (const Option& option : options()) {
    if (option.name == name) return option;
  }
  unreachable(fmt::format("no option --{}", name));
}

/// Splits "--batch --accumulate" into names without dashes.
std::vector<std::string_view> names_of(std::string_view flags) {
  std::vector<std::string_view> names;
  while (!flags.empty()) {
    const size_t space = std::min(flags.find(' '), flags.size());
    names.push_back(flags.substr(2, space - 2));
    flags.remove_prefix(std::min(space + 1, flags.size()));
  }
  return names;
}

std::string short_text(const Json& value) {
  constexpr size_t kLongest = 60;
  const std::string text = value.is_string()
                               ? value.get<std::string>()
                               : value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

/// Returns the part of a section that has no line of its own in the table.
Json without_known(Json section, const std::string& name, std::span<const ForeignKey> keys) {
  if (!section.is_object()) return section;
  for (const ForeignKey& key : keys) {
    if (key.name.starts_with(name + ".") && !key.name.ends_with(kSection)) {
      section.erase(std::string(key.name.substr(name.size() + 1)));
    }
  }
  return section;
}

/// True if a key is off: its value is null, empty, false, equal to `off` if that is given, or a
/// section with "enabled" or "enable" false.
bool is_off(const Json& value, std::string_view off) {
  if (value.is_null() || (value.is_structured() && value.empty())) return true;
  if (!off.empty()) return value == Json::parse(off);
  if (!value.is_object()) return value == false;
  for (const char* const on : {"enabled", "enable"}) {
    if (value.contains(on)) return value[on] == false;
  }
  return false;
}

[[noreturn]] void refuse_unknown(const std::string& path, std::span<const ForeignKey> keys) {
  const std::string_view nearest = plain_name(nearest_named(keys, path).name);
  throw std::invalid_argument(fmt::format("unknown key \"{}\"; {}leave it out", path,
                                          name_distance(path, nearest) <= kMistypedEdits
                                              ? fmt::format("did you mean \"{}\"? Else ", nearest)
                                              : ""));
}

}  // namespace

const Json* ForeignReader::lookup(std::string_view name) const {
  const Json* value = &document_;
  while (!name.empty()) {
    const size_t dot = std::min(name.find('.'), name.size());
    if (!value->is_object()) return nullptr;
    const auto found = value->find(std::string(name.substr(0, dot)));
    if (found == value->end()) return nullptr;
    value = &*found;
    name.remove_prefix(std::min(dot + 1, name.size()));
  }
  return value->is_null() ? nullptr : value;
}

const Json* ForeignReader::find(std::string_view name) const {
  const Json* const value = lookup(name);
  return value == nullptr || *value == "auto" ? nullptr : value;
}

bool ForeignReader::is_true(std::string_view name) const {
  const Json* const value = find(name);
  return value != nullptr && *value == true;
}

int64_t ForeignReader::count_of(std::string_view name, int64_t otherwise) const {
  const Json* const value = find(name);
  if (value == nullptr || !value->is_number_integer()) return otherwise;
  const double given = value->get<double>();  // also if no int64 holds it
  return std::abs(given) <= kMostCount ? static_cast<int64_t>(given) : otherwise;
}

std::string ForeignReader::word() const {
  if (value().is_string()) return value().get<std::string>();
  if (value().is_boolean() || value().is_number()) return value().dump();
  refuse("give one word");
}

double ForeignReader::number() const {
  if (value().is_number() && std::isfinite(value().get<double>())) return value().get<double>();
  refuse("give a number");
}

int64_t ForeignReader::count() const {
  const double given = number();
  if (given >= 0 && given <= kMostCount && given == std::floor(given)) {
    return static_cast<int64_t>(given);
  }
  refuse("give a whole number");
}

bool ForeignReader::flag() const {
  if (value().is_boolean()) return value().get<bool>();
  refuse("give true or false");
}

bool ForeignReader::has_flag(std::string_view name) const {
  return std::ranges::find(context_.flags, name) != context_.flags.end();
}

bool ForeignReader::has_world() const {
  return context_.is_launched || has_flag("world") || has_flag("workers");
}

int64_t ForeignReader::world() const {
  return std::clamp<int64_t>(has_world() ? context_.world_size : config_.workers, 1, kMostRanks);
}

std::string ForeignReader::subject() const {
  return fmt::format("{} {}{}", name_, short_text(*value_), is_fallback_ ? " (its default)" : "");
}

void ForeignReader::set(std::string_view option, std::string_view text) {
  try {
    set_option(config_, option_named(option), text);
  } catch (const std::invalid_argument& error) {
    refuse(fmt::format("would be {}", error.what()));
  }
  set_now_ += fmt::format("{}--{} {}", set_now_.empty() ? "" : " ", option, text);
}

void ForeignReader::ignore(std::string_view why) {
  if (is_fallback_) return;
  const auto same = std::ranges::find(ignored_, why, &std::pair<std::string, std::string>::first);
  if (same == ignored_.end()) {
    ignored_.emplace_back(why, subject());
  } else {
    same->second += ", " + subject();
  }
}

void ForeignReader::refuse(std::string_view why) const {
  throw std::invalid_argument(fmt::format("{}: {}", subject(), why));
}

/// Throws std::invalid_argument if an object, or one within it, has a key that the table lacks.
void ForeignReader::expect_known(const Json& object, const std::string& prefix,
                                 std::span<const ForeignKey> keys) {
  for (const auto& [name, value] : object.items()) {
    const std::string path = prefix + name, below = path + ".";
    const auto is_named = [&](const ForeignKey& key) { return plain_name(key.name) == path; };
    const auto is_below = [&](const ForeignKey& key) { return key.name.starts_with(below); };
    if (value.is_null() || std::ranges::any_of(keys, is_named)) continue;
    if (value.is_object() && !value.empty()) {
      expect_known(value, below, keys);
    } else if (!value.is_object() || std::ranges::none_of(keys, is_below)) {
      refuse_unknown(path, keys);
    }
  }
}

bool ForeignReader::is_overridden(std::string_view flags) const {
  return std::ranges::all_of(names_of(flags), [&](auto name) { return has_flag(name); });
}

/// Describes a key that is "auto", which a Trainer would have filled in from its own arguments. It
/// is described at the end, since other keys may give the value, too.
std::string ForeignReader::auto_text(const ForeignKey& key) const {
  std::string taken;
  for (const std::string_view option : names_of(key.text)) {
    taken += fmt::format(" --{} {}", option, text_of(config_, option_named(option)));
  }
  return fmt::format("{} auto ->{}, since no Trainer fills it in; give the flag", key.name, taken);
}

void ForeignReader::read_mapped(const ForeignKey& key) {
  if (is_overridden(key.text)) {
    if (!is_fallback_) lines_.push_back(fmt::format("{}: overridden by {}", subject(), key.text));
    return;
  }
  if (*value_ == "auto") return automatic_.push_back(&key);
  set_now_.clear();
  key.read(*this);
  if (!set_now_.empty()) lines_.push_back(fmt::format("{} -> {}", subject(), set_now_));
}

void ForeignReader::expect_off(const ForeignKey& key) const {
  if (*value_ != "auto" && !is_off(*value_, key.fallback)) refuse(key.text);
}

void ForeignReader::read_key(const ForeignKey& key, std::span<const ForeignKey> keys) {
  name_ = plain_name(key.name);
  value_ = lookup(name_);
  is_fallback_ = value_ == nullptr && key.effect == ForeignEffect::mapped && !key.fallback.empty();
  const Json fallback = is_fallback_ ? Json::parse(key.fallback) : Json();
  if (is_fallback_) value_ = &fallback;
  if (value_ == nullptr) return;
  if (key.effect == ForeignEffect::mapped) return read_mapped(key);
  if (key.effect == ForeignEffect::only_off) return expect_off(key);
  const Json rest = key.name.ends_with(kSection) ? without_known(*value_, name_, keys) : *value_;
  value_ = &rest;
  if (!rest.is_object() || !rest.empty()) ignore(key.text);
}

std::vector<std::string> ForeignReader::read(std::span<const ForeignKey> keys) {
  expect_known(document_, "", keys);
  for (const ForeignKey& key : keys) read_key(key, keys);
  std::vector<std::string> lines = std::move(lines_);
  for (const ForeignKey* const key : automatic_) lines.push_back(auto_text(*key));
  for (const auto& [why, names] : ignored_) {
    lines.push_back(fmt::format("ignored, {}: {}", why, names));
  }
  return lines;
}

}  // namespace shardlens::planner
