#include "base/strict_json.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <random>
#include <stdexcept>
#include <string>

#include "planner/config/arguments.h"
#include "runtime/checkpoint/checkpoint.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

namespace {

json random_value(std::mt19937& random, int depth) {
  switch (random() % (depth > 0 ? 7 : 5)) {
    case 0:
      return nullptr;
    case 1:
      return random() % 2 == 0;
    case 2:
      return static_cast<int64_t>(random()) - 2'000'000'000;
    case 3:
      return static_cast<double>(random()) / 7;
    case 4:
      return "text " + std::to_string(random()) + "\n\"";
    case 5: {
      json list = json::array();
      for (size_t i = random() % 5; i-- > 0;) list.push_back(random_value(random, depth - 1));
      return list;
    }
    default: {
      json object = json::object();
      for (size_t i = random() % 5; i-- > 0;) {
        object["k" + std::to_string(random() % 100)] = random_value(random, depth - 1);
      }
      return object;
    }
  }
}

std::string refusal_of(const std::string& text, const Limits& limits = kRecord) {
  try {
    parse_strict_json(text, limits);
  } catch (const std::runtime_error& error) {
    CHECK_THAT(error.what(), !ContainsSubstring("json.exception"));
    CHECK(std::string(error.what()).find('\n') == std::string::npos);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("trees are those of nlohmann's parser, in either order of keys") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 300; ++i) {
    const std::string text = random_value(random, 5).dump(i % 2 == 0 ? 2 : -1);
    CHECK(parse_strict_json(text) == json::parse(text));
  }
  const std::string ordered = R"({"b":[1,{"z":2,"a":null}],"a":{"y":"x","x":[]}})";
  CHECK(parse_ordered_json(ordered).dump() == ordered);
}

TEST_CASE("invalid JSON is refused in our words, with its place") {
  CHECK_THAT(refusal_of("{\n \"a\": tru}"),
             ContainsSubstring("not valid JSON: line 2, column") && ContainsSubstring("tru"));
  CHECK_THAT(refusal_of("{\"a\": [1, 2"), ContainsSubstring("it ends too early"));
  CHECK_THAT(refusal_of(""), ContainsSubstring("it ends too early"));
  CHECK_THAT(refusal_of("{\"a\": 1e999}"), ContainsSubstring("1e999 is too large for a number"));
  CHECK_THAT(refusal_of("[1] 2"), ContainsSubstring("not valid JSON"));
  CHECK_THAT(refusal_of("[\"\x1b[31m\"]"), ContainsSubstring("not valid JSON"));
  CHECK_THAT(refusal_of("{\"a\": 1, \"b\": {\"a\": 1, \"a\": 2}}"),
             ContainsSubstring("the key \"a\" is given twice"));
  CHECK(find_json("[1") == std::nullopt);
}

TEST_CASE("depth, values and bytes have limits") {
  const auto nested = [](size_t depth) {
    return std::string(depth, '[') + std::string(depth, ']');
  };
  const Limits limits = kWritten;
  CHECK(refusal_of(nested(limits.depth), limits).empty());
  CHECK_THAT(refusal_of(nested(limits.depth + 1), limits), ContainsSubstring("nests more than"));
  CHECK_THAT(refusal_of(nested(1'000'000)), ContainsSubstring("nests more than 100 deep"));
  std::string many = "[0";
  for (uint64_t i = 2; i < limits.values; ++i) many += ",0";
  CHECK(refusal_of(many + "]", limits).empty());
  CHECK_THAT(refusal_of(many + ",0]", limits), ContainsSubstring("more than 10000 values"));
  CHECK_THAT(refusal_of(std::string(limits.bytes + 1, ' '), limits), ContainsSubstring("bytes"));
}

TEST_CASE("a value of another type or size is empty, or an error in our words") {
  const json object = {{"n", 7}, {"huge", UINT64_MAX}, {"t", "x"}, {"r", 1.5}};
  CHECK(whole_in(object, "n") == 7);
  CHECK(whole_in(object, "huge") == std::nullopt);
  CHECK(whole_in(object, "r") == std::nullopt);
  CHECK(whole_in(json::array(), "n") == std::nullopt);
  CHECK(text_in(object, "t") == "x");
  CHECK(text_in(object, "n") == std::nullopt);
  for (const char* text :
       {R"({"schema": "shardlens.checkpoint/1"})",
        R"({"schema": "shardlens.checkpoint/1", "step": "x", "files": []})",
        R"({"schema": "shardlens.checkpoint/1", "step": 1e999, "files": []})",
        R"({"schema": "shardlens.checkpoint/1", "step": 1e300, "files": []})",
        R"({"schema": "shardlens.checkpoint/1", "step": 18446744073709551615, "files": []})", "[",
        "[]"}) {
    try {
      runtime::parse_manifest(text);
      FAIL("was read: " << text);
    } catch (const std::runtime_error& error) {
      CHECK_THAT(error.what(), !ContainsSubstring("json.exception"));
    }
  }
}

TEST_CASE("a whole number is what its type holds, and nothing else") {
  const json numbers = {0, 255, 256, -1, INT64_MAX, UINT64_MAX, 1e300, 2.0, "7", nullptr};
  CHECK(whole_of<uint8_t>(numbers[1]) == 255);
  CHECK(whole_of<int>(numbers[3]) == -1);
  CHECK(whole_of(numbers[4]) == INT64_MAX);
  CHECK(whole_of<uint64_t>(numbers[5]) == UINT64_MAX);
  CHECK_THROWS_AS(whole_of<uint8_t>(numbers[2]), json::type_error);
  CHECK_THROWS_AS(whole_of<size_t>(numbers[3]), json::type_error);
  CHECK_THROWS_AS(whole_of<int>(numbers[4]), json::type_error);
  for (size_t i = 5; i < numbers.size(); ++i) {
    INFO(numbers[i]);
    CHECK_THROWS_AS(whole_of(numbers[i]), json::type_error);
  }
  CHECK(whole_or(json{{"a", 3}}, "a", 1) == 3);
  CHECK(whole_or(json{{"a", 3}}, "b", 1) == 1);
}

TEST_CASE("a configuration's number that is too large is refused in one line") {
  const tests::TemporaryFolder folder;
  for (const char* name : {"c.json", "c.yaml", "c.toml"}) {
    tests::write_file(folder.file(name), "{\"batch\": 1e999}");
    try {
      planner::parse_arguments({"--config", folder.file(name)});
      FAIL("was read: " << name);
    } catch (const std::invalid_argument& error) {
      CHECK_THAT(error.what(), ContainsSubstring(folder.file(name)));
      CHECK_THAT(error.what(), !ContainsSubstring("json.exception"));
    }
  }
}

TEST_CASE("a flag that is not UTF-8 is refused, since no configuration could hold it") {
  CHECK_THROWS_AS(planner::parse_arguments({"--data", "/data/\xe9t\xe9"}), std::invalid_argument);
}
