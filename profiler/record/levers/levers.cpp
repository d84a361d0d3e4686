#include "profiler/record/levers/levers.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <stdexcept>

#include "base/gpus.h"

namespace shardlens::profiler {

namespace {

/// Takes the part of `text` before `separator` away and returns it.
std::string_view take_part(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

bool is_number(std::string_view text) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number > 0;
}

bool is_fraction(std::string_view text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() && number > 0 && number < 1;
}

/// True if `value` is what one alternative of LeverInfo::values allows.
bool is_like(std::string_view alternative, std::string_view value) {
  if (alternative == "F") return is_fraction(value);
  if (alternative == "GPU") return std::ranges::find(gpus(), value, &Gpu::name) != gpus().end();
  if (alternative == "FILE") return std::filesystem::is_regular_file(value);
  if (!alternative.ends_with('N')) return alternative == value;
  const std::string_view start = alternative.substr(0, alternative.size() - 1);
  return value.starts_with(start) && is_number(value.substr(start.size()));
}

bool takes(const LeverInfo& lever, std::string_view value) {
  std::string_view rest = lever.values;
  while (!rest.empty()) {
    if (is_like(take_part(rest, '|'), value)) return true;
  }
  return lever.values.empty() && value.empty();
}

/// Returns the value of a lever that is given without one; "" if it needs one.
std::string_view usual_value(const LeverInfo& lever) {
  std::string_view rest = lever.values;
  const std::string_view first = take_part(rest, '|');
  const bool is_to_fill = first.ends_with('N') || first == "F" || first == "GPU";
  return is_to_fill ? std::string_view() : first;
}

/// Returns the meaning of N, F and GPU in the values of a lever.
std::string_view meaning_of(std::string_view values) {
  if (values == "GPU") return ", the name of a simulated GPU, such as h200";
  if (values.ends_with("FILE")) return ", where N is a whole number and FILE exists";
  if (values.find('N') != std::string_view::npos) return ", where N is a whole number";
  return values == "F" ? ", a number F between 0 and 1" : "";
}

std::string names_of_levers() {
  std::string names;
  for (const LeverInfo& lever : levers())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", lever.name);
  return names;
}

const LeverInfo& require_lever(std::string_view name) {
  const auto found = std::ranges::find(levers(), name, &LeverInfo::name);
  if (found != levers().end()) return *found;
  throw std::invalid_argument(
      fmt::format("--with {}: unknown lever; give one of {}", name, names_of_levers()));
}

Lever parse_lever(std::string_view text) {
  const std::string_view name = take_part(text, '=');
  const LeverInfo& info = require_lever(name);
  const std::string_view value = text.empty() ? usual_value(info) : text;
  if (takes(info, value)) return {.name = std::string(name), .value = std::string(value)};
  if (info.values.empty()) {
    throw std::invalid_argument(
        fmt::format("--with {}={}: {} has no values; give {}", name, value, name, name));
  }
  throw std::invalid_argument(fmt::format("--with {}={}: unknown value; give {}={}{}", name, value,
                                          name, info.values, meaning_of(info.values)));
}

}  // namespace

const LeverInfo& lever_info(std::string_view name) {
  return *std::ranges::find(levers(), name, &LeverInfo::name);
}

bool contradict(const Lever& one, const Lever& other) {
  if (one.name == other.name) return true;
  const std::string_view subject = lever_info(one.name).subject;
  return !subject.empty() && subject == lever_info(other.name).subject;
}

void check_levers(const std::vector<Lever>& levers) {
  for (auto one = levers.begin(); one != levers.end(); ++one) {
    const auto other = std::find_if(levers.begin(), one,
                                    [&](const Lever& before) { return contradict(before, *one); });
    if (other == one) continue;
    throw std::invalid_argument(
        fmt::format("--with {},{}: these contradict each other; give one of them",
                    lever_text(*other), lever_text(*one)));
  }
}

std::vector<Lever> levers_to_try() {
  std::vector<Lever> all;
  for (const LeverInfo& info : levers()) {
    if (info.tries == "yes") all.push_back({.name = std::string(info.name)});
    std::string_view rest = info.tries == "yes" ? "" : info.tries;
    while (!rest.empty()) {
      all.push_back({.name = std::string(info.name), .value = std::string(take_part(rest, '|'))});
    }
  }
  return all;
}

std::vector<Lever> parse_levers(const std::string& text) {
  std::vector<Lever> parsed;
  std::string_view rest = text;
  do {
    parsed.push_back(parse_lever(take_part(rest, ',')));
  } while (!rest.empty());
  check_levers(parsed);
  return parsed;
}

bool acts_at_start(const Lever& lever) {
  return lever_info(lever.name).code.starts_with("PYTORCH_CUDA_ALLOC_CONF");
}

std::string lever_text(const Lever& lever) {
  return lever.value.empty() ? lever.name : fmt::format("{}={}", lever.name, lever.value);
}

std::string levers_text(const std::vector<Lever>& levers) {
  std::string text;
  for (const Lever& lever : levers) text += (text.empty() ? "" : ",") + lever_text(lever);
  return text;
}

std::string lever_list() {
  std::string text;
  for (const LeverInfo& lever : levers()) {
    text += fmt::format("{}{}{}\n", lever.name, lever.values.empty() ? "" : "=", lever.values);
    text += fmt::format("  does     {}\n  applies  {}\n", lever.does, lever.applies);
    text += fmt::format("  code     {}\n  costs    {}\n", lever.code, lever.costs);
  }
  return text;
}

}  // namespace shardlens::profiler
