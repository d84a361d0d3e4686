#include "planner/name_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

namespace shardlens::planner {

NamePattern::NamePattern(const std::string& option, const std::string& expression)
    : text_(option + expression) {
  try {
    regex_.assign(expression, std::regex::ECMAScript | std::regex::optimize);
  } catch (const std::regex_error&) {
    throw std::invalid_argument(
        fmt::format("{}: not a regular expression; give one for whole names, such as "
                    "'.*\\.layers\\.\\d+'",
                    text_));
  }
}

std::string NamePattern::match(const std::string& parameter) const {
  for (size_t end = parameter.find('.');; end = parameter.find('.', end + 1)) {
    const std::string name = parameter.substr(0, end);
    if (std::regex_match(name, regex_)) return name;
    if (end == std::string::npos) return "";
  }
}

void NamePattern::expect_matches(const models::ModelSpec& spec) const {
  const bool any = std::any_of(
      spec.parameters.begin(), spec.parameters.end(),
      [&](const models::ParameterSpec& parameter) { return !match(parameter.name).empty(); });
  if (any) return;
  throw std::invalid_argument(fmt::format(
      "{}: no module or parameter of {} has such a whole name; its last parameter is {}", text_,
      spec.name, spec.parameters.back().name));
}

}  // namespace shardlens::planner
