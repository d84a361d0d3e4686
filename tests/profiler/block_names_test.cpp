#include "profiler/report/block_names.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "profiler/recorder/known_classes.h"
#include "profiler/report/place_totals.h"
#include "profiler/report/report.h"

namespace shardlens::profiler {

namespace {

using Texts = std::vector<std::string>;

/// Returns the names that a joined text stands for.
std::multiset<std::string> expanded(const std::string& text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const bool starts = (i == 0 || text[i - 1] == '.') && text[i] >= '0' && text[i] <= '9';
    if (!starts) continue;
    size_t end = i;
    while (end < text.size() && text[end] != '.') ++end;
    const std::string list = text.substr(i, end - i);
    if (list.find_first_of("-,") == std::string::npos) continue;
    std::multiset<std::string> all;
    for (size_t at = 0; at < list.size();) {
      const size_t comma = std::min(list.find(',', at), list.size());
      const std::string range = list.substr(at, comma - at);
      const size_t dash = range.find('-');
      const int first = std::stoi(range);
      const int last = dash == std::string::npos ? first : std::stoi(range.substr(dash + 1));
      for (int n = first; n <= last; ++n) {
        const std::string one = text.substr(0, i) + std::to_string(n) + text.substr(end);
        for (const std::string& name : expanded(one)) all.insert(name);
      }
      at = comma + 1;
    }
    return all;
  }
  return {text};
}

}  // namespace

TEST_CASE("names that differ in a number are joined") {
  CHECK(joined_names({}).empty());
  CHECK(joined_names({"head.weight"}) == Texts{"head.weight"});
  CHECK(joined_names({"layers.0.up", "layers.1.up", "layers.3.up"}) == Texts{"layers.0-1,3.up"});
  CHECK(joined_names({"0.up", "0.down", "1.up", "1.down"}) == Texts{"0-1.up", "0-1.down"});
  CHECK(joined_names({"a.0.b.0", "a.0.b.1", "a.1.b.0", "a.1.b.1"}) == Texts{"a.0-1.b.0-1"});
  CHECK(joined_names({"layers.7, 12 parameters", "layers.8, 12 parameters"}) ==
        Texts{"layers.7-8, 12 parameters"});
  CHECK(joined_names({"fc1.weight", "fc2.weight"}) == Texts{"fc1.weight", "fc2.weight"});
  CHECK(joined_names({"a.01", "a.1"}) == Texts{"a.01", "a.1"});
}

TEST_CASE("joined names stand for exactly the names") {
  INFO("seed " << Catch::getSeed());
  std::mt19937_64 engine(Catch::getSeed());
  const auto below = [&](uint64_t n) { return static_cast<int>(engine() % n); };
  for (int round = 0; round < 300; ++round) {
    std::set<std::string> names;
    for (int i = below(30); i >= 0; --i) {
      std::string name = "m." + std::to_string(below(4));
      if (below(2) == 0) name += ".e." + std::to_string(below(3));
      names.insert(name + (below(2) == 0 ? ".w" : ".b"));
    }
    std::multiset<std::string> found;
    for (const std::string& text : joined_names({names.begin(), names.end()})) {
      for (const std::string& name : expanded(text)) found.insert(name);
    }
    CHECK(found == std::multiset<std::string>(names.begin(), names.end()));
  }
}

TEST_CASE("a text of names shows two and counts the others") {
  CHECK(names_text({}).empty());
  CHECK(names_text({"a", "b"}) == "a, b");
  CHECK(names_text({"a", "b", "c", "d"}) == "a, b and 2 more");
}

TEST_CASE("a name holds from the allocation on, and the last one counts") {
  Profile profile;
  profile.strings = {"", "train.py:3 main", "0.weight", "1.weight"};
  const auto named = [](uint64_t address, uint32_t name) {
    return Event{.address = address,
                 .label = name,
                 .kind = EventKind::recategorise,
                 .category = Category::gradient};
  };
  profile.events = {Event{.address = 1, .value = 512, .label = 1},
                    Event{.address = 2, .value = 512, .label = 1},
                    Event{.address = 3, .value = 512, .label = 1},
                    named(1, 3),
                    named(2, 3),
                    Event{.address = 3, .kind = EventKind::free},
                    named(1, 2),
                    named(1, 0)};
  const RankReport report = analyse(profile);
  const std::vector<PlaceTotal> places = place_totals(report.main_space()->tensors);
  REQUIRE(places.size() == 2);
  CHECK(places[0].category == Category::gradient);
  CHECK(places[0].names == Texts{"0.weight", "1.weight"});
  CHECK(places[1].names.empty());
  CHECK(report_text({report}).find("train.py:3 main: 0-1.weight\n") != std::string::npos);
}

TEST_CASE("a block without a line never has the name -") {
  Profile profile;
  profile.strings = {""};
  profile.events = {Event{.address = 1, .value = 512}};
  CHECK(report_text({analyse(profile)}).find("without a line\n") != std::string::npos);
}

TEST_CASE("the classes of parameters and of unknown blocks are kept") {
  KnownClasses classes;
  classes.keep(8, Category::other, 0);
  CHECK(classes.class_at(8) == Category::other);
  CHECK_FALSE(classes.parameter_at(8));
  classes.keep(8, Category::parameter_shard, 5);
  classes.keep(8, Category::unsharded_parameter, 0);
  CHECK(classes.parameter_at(8) == 5U);
  classes.keep(8, Category::gradient, 0);
  CHECK_FALSE(classes.class_at(8));
  classes.keep(9, Category::parameter_shard, 0);
  CHECK(classes.parameter_at(9) == 0U);
  classes.forget(9);
  CHECK_FALSE(classes.parameter_at(9));
}

}  // namespace shardlens::profiler
