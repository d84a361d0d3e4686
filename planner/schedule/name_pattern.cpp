#include "planner/schedule/name_pattern.h"

#include <fmt/format.h>
#include <re2/re2.h>

#include <algorithm>
#include <stdexcept>

#include "base/shown.h"

namespace shardlens::planner {

namespace {

/// Compiles an expression that compares bytes, whatever encoding a name has.
std::shared_ptr<const re2::RE2> compiled(const std::string& expression) {
  re2::RE2::Options options(re2::RE2::Latin1);
  options.set_log_errors(false);
  return std::make_shared<const re2::RE2>(expression, options);
}

}  // namespace

NamePattern::NamePattern(const std::string& option, const std::string& expression)
    : text_(shown(option + expression)), regex_(compiled(expression)) {
  if (regex_->ok()) return;
  throw std::invalid_argument(
      fmt::format("{}: not a regular expression that is supported ({}; there is no lookahead and "
                  "no backreference); give one for whole names, such as '.*\\.layers\\.\\d+'",
                  text_, shown(regex_->error())));
}

std::string NamePattern::match(const std::string& parameter) const {
  for (size_t end = parameter.find('.');; end = parameter.find('.', end + 1)) {
    const std::string name = parameter.substr(0, end);
    if (re2::RE2::FullMatch(name, *regex_)) return name;
    if (end == std::string::npos) return "";
  }
}

void NamePattern::expect_matches(const models::ModelSpec& spec) const {
  const bool any = std::any_of(
      spec.parameters.begin(), spec.parameters.end(),
      [&](const models::ParameterSpec& parameter) { return !match(parameter.name).empty(); });
  if (any) return;
  throw std::invalid_argument(
      fmt::format("{}: no module or parameter of {} has that whole name; its last parameter is {}",
                  text_, spec.name, spec.parameters.back().name));
}

}  // namespace shardlens::planner
