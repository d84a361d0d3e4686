#include "runtime/launch/events.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"

using namespace shardlens;
using runtime::EventLog;
using runtime::read_events;
using runtime::RunEvent;
namespace fs = std::filesystem;

TEST_CASE("an event is a line of JSON with the documented keys") {
  const tests::TemporaryFolder folder;
  EventLog log(folder.file("events.jsonl"));
  log.add({.generation = 3, .kind = "killed", .rank = 1, .step = 57, .text = "a \"b\"\n\xff"});
  log.add({.generation = 4, .kind = "restarted", .text = ""});
  const std::string text = tests::read_file(folder.file("events.jsonl"));
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
  const auto json = nlohmann::json::parse(text.substr(0, text.find('\n')));
  CHECK(json.size() == 6);
  CHECK(json["generation"] == 3);
  CHECK(json["rank"] == 1);
  CHECK(json["step"] == 57);
  CHECK_THAT(json["time"].get<std::string>(),
             Catch::Matchers::Matches(
                 "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z"));
  const auto events = read_events(folder.file("events.jsonl"));
  REQUIRE(events.size() == 2);
  CHECK(events[0].kind == "killed");
  CHECK(events[0].rank == 1);
  CHECK(events[1].generation == 4);
  CHECK_FALSE(events[1].rank.has_value());
  CHECK_FALSE(events[1].step.has_value());
}

TEST_CASE("all other events are read, whatever a crash leaves of a line") {
  const tests::TemporaryFolder folder;
  const std::string file = folder.file("events.jsonl");
  EventLog(file).add({.generation = 1, .kind = "started", .text = "4 ranks"});
  EventLog(file).add({.generation = 1, .kind = "killed", .text = "rank 1"});
  const std::string whole = tests::read_file(file);
  const size_t first = whole.find('\n') + 1;
  for (size_t cut = first; cut <= whole.size(); ++cut) {
    tests::write_file(file, whole.substr(0, cut));
    EventLog(file).add({.generation = 2, .kind = "finished", .text = ""});
    const auto events = read_events(file);
    // A line that only lacks its end is whole.
    REQUIRE(events.size() == (cut + 1 >= whole.size() ? 3 : 2));
    CHECK(events.front().kind == "started");
    CHECK(events.back().kind == "finished");
  }
}

TEST_CASE("an event that the disk cannot take is written with the next one") {
  const tests::TemporaryFolder folder;
  const std::string file = folder.file("later/events.jsonl");
  EventLog log(file);
  log.add({.generation = 1, .kind = "disk_full", .text = ""});
  CHECK(read_events(file).empty());
  fs::create_directory(folder.file("later"));
  log.add({.generation = 1, .kind = "restarted", .text = ""});
  const auto events = read_events(file);
  REQUIRE(events.size() == 2);
  CHECK(events[0].kind == "disk_full");
}
