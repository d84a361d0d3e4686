#include "planner/schedule/name_pattern.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/sample.h"

using namespace shardlens;
using Catch::Matchers::ContainsSubstring;
using planner::NamePattern;

namespace {

/// The answer of the standard library's regular expressions (ECMAScript's), by the same rule.
std::string match_of_standard(const std::string& expression, const std::string& parameter) {
  const std::regex regex(expression);
  for (size_t end = parameter.find('.');; end = parameter.find('.', end + 1)) {
    const std::string name = parameter.substr(0, end);
    if (std::regex_match(name, regex)) return name;
    if (end == std::string::npos) return "";
  }
}

/// Without nested quantifiers, which make the standard library take exponential time.
std::string random_expression(std::mt19937& random, int depth) {
  static const std::vector<std::string> kParts = {
      "layers", "\\.",    ".*",     ".*?", "\\d+", "[0-9]", "[^.]+", "mlp",  "\\w*",   "weight",
      "bias",   "[a-z_]", "(?:ln)", "_",   "\\d",  ".",     "\\W",   "[.]?", "1{1,2}", "\\b"};
  std::string expression;
  for (size_t i = 1 + random() % 5; i-- > 0;) {
    if (depth > 0 && random() % 5 == 0) {
      const std::string inside = random_expression(random, depth - 1);
      expression += "(" + inside + (random() % 2 == 0 ? "|" + random_expression(random, 0) : "") +
                    ")" + (random() % 2 == 0 ? "?" : "");
    } else {
      expression += kParts[random() % kParts.size()];
    }
  }
  return expression;
}

}  // namespace

TEST_CASE("expressions mean what they mean in ECMAScript", "[wrap]") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  const std::vector<std::string> names = {"layers.1.mlp.ln.weight",
                                          "layers.12.mlp.bias",
                                          "encoder.layers.encoder_layer_3.ln_1.weight",
                                          "mlp",
                                          "class_token",
                                          "layers.layers.1.weight",
                                          "weights.1",
                                          "caf\xc3\xa9.weight"};
  int matched = 0;
  for (int64_t i = 0; i < tests::sampled(3000); ++i) {
    const std::string expression = random_expression(random, 2);
    for (const std::string& name : names) {
      CAPTURE(expression, name);
      const std::string found = NamePattern("--freeze ", expression).match(name);
      CHECK(found == match_of_standard(expression, name));
      matched += found.empty() ? 0 : 1;
    }
  }
  CHECK(matched > tests::sampled(100));
}

TEST_CASE("expressions that cannot be matched in linear time are refused in one line", "[wrap]") {
  for (const char* expression : {"(a)\\1", "(?=mlp).*", "(?!mlp).*", "(?<=a)b", "(", "[a", "*"}) {
    try {
      const NamePattern pattern("--freeze ", expression);
      FAIL("was taken: " << expression);
    } catch (const std::invalid_argument& error) {
      CHECK_THAT(error.what(), ContainsSubstring("--freeze " + std::string(expression)));
      CHECK(std::string(error.what()).find('\n') == std::string::npos);
    }
  }
}
