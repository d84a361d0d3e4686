#include "profiler/compare/origin.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <sstream>

namespace shardlens::profiler {

namespace {

constexpr std::string_view kDigits = "0123456789";

/// Returns "forward, backward from train.py main" of "forward, backward from train.py:30 main": a
/// line that moves does not make another function.
std::string without_lines(std::string_view function) {
  std::string text;
  for (size_t i = 0; i < function.size(); ++i) {
    const size_t end = std::min(function.find_first_not_of(kDigits, i + 1), function.size());
    const bool is_line = function[i] == ':' && end > i + 1;
    if (is_line) i = end;
    if (i < function.size()) text += function[i];
  }
  return text;
}

/// Returns "forward, backward from main" of "forward, backward from train.py main" in train.py: a
/// file that is renamed does not make another function either.
std::string without_file(std::string function, const std::string& file) {
  const std::string caller = ", backward from " + file + " ";
  const size_t at = function.find(caller);
  if (at != std::string::npos)
    function.erase(at + caller.size() - file.size() - 1, file.size() + 1);
  return function;
}

/// Reads "train.py:41 forward"; returns nothing for any other label.
std::optional<Origin> line_of_program(std::string_view label) {
  for (size_t colon = label.find(':'); colon != std::string_view::npos;
       colon = label.find(':', colon + 1)) {
    const char* const first = label.data() + colon + 1;
    const char* const last = label.data() + label.size();
    int64_t line = 0;
    const auto [end, error] = std::from_chars(first, last, line);
    const bool is_whole = error == std::errc{} && (end == last || *end == ' ');
    if (!is_whole || colon == 0) continue;
    const std::string_view path = label.substr(0, colon);
    const std::string file(path.substr(path.rfind('/') + 1));
    const std::string function = end == last ? "" : without_lines({end + 1, last});
    return Origin{
        .file = file, .line = line, .function = without_file(function, file), .module = ""};
  }
  return std::nullopt;
}

/// Compares two runs of digits, of any length, by their values.
int compare_numbers(std::string_view a, std::string_view b) {
  const auto without_zeros = [](std::string_view digits) {
    return digits.substr(std::min(digits.find_first_not_of('0'), digits.size()));
  };
  a = without_zeros(a);
  b = without_zeros(b);
  if (a.size() != b.size()) return a.size() < b.size() ? -1 : 1;
  return a.compare(b);
}

/// Cuts a run of digits, or of anything else, from the front of a text.
std::string_view cut_run(std::string_view& text) {
  const bool is_number = kDigits.find(text.front()) != std::string_view::npos;
  const size_t end = is_number ? text.find_first_not_of(kDigits) : text.find_first_of(kDigits);
  const std::string_view run = text.substr(0, end);
  text.remove_prefix(run.size());
  return run;
}

}  // namespace

Origin origin_of(std::string_view label, std::string_view action) {
  if (auto line = line_of_program(label)) return *std::move(line);
  const size_t blank = std::min(action.find(' '), action.size());
  Origin origin{.file = "",
                .line = 0,
                .function = std::string(action.substr(0, blank)),
                .module = std::string(label)};
  if (label.empty() && blank < action.size()) origin.module = action.substr(blank + 1);
  return origin;
}

std::string name_of_origin(std::string_view label, std::string_view action) {
  if (!label.empty()) return std::string(label);
  return action.empty() ? "without a name" : std::string(action);
}

std::string short_action(int32_t id, std::string_view words) {
  if (id < 0) return "";
  if (words.empty()) return fmt::format("action {}", id);
  std::istringstream fields{std::string(words)};
  std::string kind, unit, group, bucket;
  fields >> kind;
  for (std::string field; fields >> field;) {
    const size_t equals = field.find('=');
    if (equals == std::string::npos) continue;
    const std::string value = field.substr(equals + 1);
    if (field.starts_with("unit=")) unit = " " + value;
    if (field.starts_with("group=")) group = " " + value;
    if (field.starts_with("bucket=")) bucket = " bucket " + value;
  }
  return kind + (unit.empty() ? group : unit) + bucket;
}

bool is_naturally_less(std::string_view a, std::string_view b) {
  const std::string_view whole_a = a, whole_b = b;
  while (!a.empty() && !b.empty()) {
    const bool are_numbers = kDigits.find(a.front()) != std::string_view::npos &&
                             kDigits.find(b.front()) != std::string_view::npos;
    const std::string_view run_a = cut_run(a);
    const std::string_view run_b = cut_run(b);
    const int order = are_numbers ? compare_numbers(run_a, run_b) : run_a.compare(run_b);
    if (order != 0) return order < 0;
  }
  // Names that differ only in leading zeros have an order, too.
  return a.empty() == b.empty() ? whole_a < whole_b : a.empty();
}

}  // namespace shardlens::profiler
