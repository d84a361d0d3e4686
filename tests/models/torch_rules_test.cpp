#include "models/torch_rules.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <stdexcept>
#include <string>

using namespace shardlens;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

TEST_CASE("a version of PyTorch has the rules of its minor version", "[torch]") {
  for (const char* version : {"2.15", "2.15.0", "2.15.1+cu132", "2.15.0a0+git1234567"}) {
    CHECK(models::torch_rules(version).version == "2.15");
  }
  CHECK(models::torch_rules("2.11.0").version == "2.11");
  for (const char* version : {"2.1", "2.10.0", "2.16", "2.150", "3.15", "1.13", "", "banana"}) {
    CHECK_THROWS_MATCHES(
        models::torch_rules(version), std::invalid_argument,
        MessageMatches(ContainsSubstring("its rules are not known; give 2.11 to 2.15")));
  }
}

TEST_CASE("a version of PyTorch without rules has the nearest one's", "[torch]") {
  CHECK(models::nearest_torch_rules("2.13.0").version == "2.13");
  CHECK(models::nearest_torch_rules("2.9.1").version == "2.11");
  CHECK(models::nearest_torch_rules("2.16.0.dev20261120").version == "2.15");
}
