// A simulation predicts by what it takes and how long it keeps that, so a local tensor that nothing
// reads may be part of the prediction, or dead code. This test distinguishes the two: the first
// kind is declared as Holder (planner/simulate/meta/tensor.h), and any other local is read.

#include <catch2/catch_test_macros.hpp>
#include <regex>
#include <string>
#include <vector>

#include "tests/support/repository.h"

namespace {

using shardlens::tests::lines_of;
using shardlens::tests::repository;

size_t indent_of(const std::string& line) { return line.find_first_not_of(' '); }

/// Tells whether a line ends the scope of a variable declared `indent` columns in: a brace further
/// left.
bool ends_scope(const std::string& line, size_t indent) {
  const size_t own = indent_of(line);
  return own < indent && line[own] == '}';
}

/// Tells whether a name appears in a line after the one that declares it, within its scope.
bool is_read(const std::vector<std::string>& lines, size_t declared, const std::string& name) {
  const std::regex word("\\b" + name + "\\b");
  const size_t indent = indent_of(lines[declared]);
  for (size_t i = declared + 1; i < lines.size() && !ends_scope(lines[i], indent); ++i) {
    if (std::regex_search(lines[i].substr(0, lines[i].find("//")), word)) return true;
  }
  return false;
}

/// Returns the local tensors and blocks of a source that no later line names.
std::vector<std::string> unread_in(const std::string& text) {
  static const std::regex declaration(
      R"(^ +(?:const )?(?:meta::)?(?:Tensor|Block|Number) (\w+)(?: = |\().*)");
  const std::vector<std::string> lines = lines_of(text);
  std::vector<std::string> unread;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::smatch found;
    if (!std::regex_match(lines[i], found, declaration) || lines[i].ends_with("{")) continue;
    if (!is_read(lines, i, found[1])) unread.push_back(found[1]);
  }
  return unread;
}

}  // namespace

TEST_CASE("a simulation's tensors are read or held") {
  for (const auto& file : repository()) {
    if (!file.path.ends_with(".cpp")) continue;
    if (!file.path.starts_with("planner/simulate/")) continue;
    INFO(file.path);
    CHECK(unread_in(file.text) == std::vector<std::string>{});
  }
}

TEST_CASE("a tensor that nothing reads is found in any scope") {
  const std::string source =
      "Tensor f(const Tensor& input) {\n"
      "  const Tensor read = like(input);\n"
      "  const Tensor left = like(input);\n"
      "  const Holder kept(empty_like(input));\n"
      "  {\n"
      "    const Tensor inner = like(read);  // inner\n"
      "  }\n"
      "  const Tensor inner = like(read);\n"
      "  return inner;\n"
      "}\n";
  CHECK(unread_in(source) == std::vector<std::string>{"left", "inner"});
}
