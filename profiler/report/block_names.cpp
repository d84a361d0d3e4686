#include "profiler/report/block_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <set>
#include <string_view>
#include <tuple>

#include "base/shown.h"

namespace shardlens::profiler {

namespace {

constexpr size_t kShownNames = 2;
constexpr size_t kMostDigits = 9;  // a longer run is not an index

/// A name as texts around numbers: texts[0] numbers[0] texts[1] ... A joined number is a text, too.
struct Name {
  std::vector<std::string> texts = {""};
  std::vector<std::string> numbers;

  bool operator<(const Name& other) const {
    return std::tie(texts, numbers) < std::tie(other.texts, other.numbers);
  }
  bool operator==(const Name&) const = default;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool is_around_numbers(char c) { return c == '.' || c == ' ' || c == ','; }

/// True if the digits from `begin` to `end` are a number of the name: no leading zero, so that a
/// number has one spelling.
bool is_number(std::string_view name, size_t begin, size_t end) {
  if (begin > 0 && !is_around_numbers(name[begin - 1])) return false;
  if (end < name.size() && !is_around_numbers(name[end])) return false;
  return end - begin <= kMostDigits && (name[begin] != '0' || end - begin == 1);
}

Name split(std::string_view name) {
  Name parts;
  for (size_t begin = 0; begin < name.size();) {
    size_t end = begin + 1;
    while (end < name.size() && is_digit(name[end]) == is_digit(name[begin])) ++end;
    const std::string_view run = name.substr(begin, end - begin);
    if (is_digit(name[begin]) && is_number(name, begin, end)) {
      parts.numbers.emplace_back(run);
      parts.texts.emplace_back();
    } else {
      parts.texts.back() += run;
    }
    begin = end;
  }
  return parts;
}

std::string text_of(const Name& name) {
  std::string text = name.texts[0];
  for (size_t i = 0; i < name.numbers.size(); ++i) text += name.numbers[i] + name.texts[i + 1];
  return text;
}

/// Returns "0-7", "0,2-4".
std::string ranges_text(const std::set<int64_t>& numbers) {
  std::string text;
  for (auto at = numbers.begin(); at != numbers.end();) {
    const int64_t first = *at;
    int64_t last = first;
    for (++at; at != numbers.end() && *at == last + 1; ++at) last = *at;
    text += fmt::format("{}{}", text.empty() ? "" : ",", first);
    if (last > first) text += fmt::format("-{}", last);
  }
  return text;
}

/// Joins the names that only differ in the number at `position`, which is in none joined yet.
std::vector<Name> joined_at(const std::vector<Name>& names, size_t position) {
  std::vector<Name> joined;
  std::vector<std::set<int64_t>> numbers;
  std::map<Name, size_t> found;
  for (const Name& name : names) {
    Name rest = name;
    if (position < name.numbers.size()) rest.numbers[position].clear();
    const auto [at, is_new] = found.emplace(rest, joined.size());
    if (is_new) {
      joined.push_back(name);
      numbers.emplace_back();
    }
    if (position >= name.numbers.size()) continue;
    int64_t number = 0;
    const std::string& digits = name.numbers[position];
    std::from_chars(digits.data(), digits.data() + digits.size(), number);
    numbers[at->second].insert(number);
  }
  for (size_t i = 0; i < joined.size(); ++i) {
    if (!numbers[i].empty()) joined[i].numbers[position] = ranges_text(numbers[i]);
  }
  return joined;
}

}  // namespace

std::vector<std::string> joined_names(const std::vector<std::string>& names) {
  std::vector<Name> parts;
  size_t positions = 0;
  for (const std::string& name : names) {
    if (name.empty()) continue;
    parts.push_back(split(name));
    positions = std::max(positions, parts.back().numbers.size());
  }
  for (size_t position = 0; position < positions; ++position) parts = joined_at(parts, position);
  std::vector<std::string> texts;
  for (const Name& name : parts) {
    if (std::ranges::find(texts, text_of(name)) == texts.end()) texts.push_back(text_of(name));
  }
  return texts;
}

std::string names_text(const std::vector<std::string>& names) {
  const std::vector<std::string> joined = joined_names(names);
  std::string text;
  for (size_t i = 0; i < std::min(kShownNames, joined.size()); ++i) {
    text += (i == 0 ? "" : ", ") + shown(joined[i]);
  }
  if (joined.size() <= kShownNames) return text;
  return text + fmt::format(" and {} more", joined.size() - kShownNames);
}

}  // namespace shardlens::profiler
