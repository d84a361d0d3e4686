#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <stdexcept>

#include "models/families.h"
#include "planner/schedule/schedule.h"
#include "tests/support/random_vit.h"

using namespace shardlens;
using namespace shardlens::planner;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::StartsWith;

namespace {

std::string golden(const std::string& name) {
  std::ifstream file(std::string(SHARDLENS_SOURCE_DIR "/tests/fixtures/schedules/") + name);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

Schedule tutorial(StrategyKind kind, int world_size) {
  Strategy strategy;
  strategy.kind = kind;
  strategy.world_size = world_size;
  return build_schedule(models::find_spec("vit-tutorial"), strategy, Pass::train);
}

Schedule small_fsdp() {
  const models::VitSizes sizes{.image_px = 4,
                               .patch_px = 2,
                               .channels = 1,
                               .layers = 1,
                               .heads = 1,
                               .width = 8,
                               .mlp_width = 8,
                               .classes = 3};
  Strategy strategy;
  strategy.world_size = 2;
  return build_schedule(models::make_spec("small", sizes), strategy, Pass::train);
}

/// Returns a line with single blanks between its words.
std::string with_single_blanks(const std::string& line) {
  std::istringstream words(line);
  std::string text, word;
  while (words >> word) text += (text.empty() ? "" : " ") + word;
  return text;
}

enum class Verdict { refused, invalid, valid };

/// The outcome of reading any text; anything but these three fails the test.
Verdict read(const std::string& text) {
  Schedule schedule;
  try {
    schedule = parse_schedule(text);
  } catch (const std::invalid_argument&) {
    return Verdict::refused;
  }
  try {
    validate(schedule);
  } catch (const std::logic_error&) {
    return Verdict::invalid;
  }
  REQUIRE(parse_schedule(to_text(schedule)) == schedule);
  return Verdict::valid;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// One random change: a byte, a cut, a line removed or written twice.
void damage(std::string& text, std::mt19937_64& engine) {
  const auto position = [&] {
    return static_cast<size_t>(
        tests::random_between(engine, 0, static_cast<int64_t>(text.size()) - 1));
  };
  const size_t at = position();
  const size_t line = text.rfind('\n', at) + 1;  // 0 if there is none
  const size_t line_size = text.find('\n', line) - line + 1;
  switch (tests::random_between(engine, 0, 5)) {
    case 0:
      text[at] = static_cast<char>(tests::random_between(engine, 0, 255));
      break;
    case 1:
      text[at] = static_cast<char>(tests::random_between(engine, '0', '9'));
      break;
    case 2:
      text.insert(at, 1, text[position()]);
      break;
    case 3:
      text.erase(line, line_size);
      break;
    case 4:
      text.insert(line, text.substr(line, line_size));
      break;
    default:
      text.erase(at, static_cast<size_t>(tests::random_between(engine, 1, 9)));
      break;
  }
}

}  // namespace

TEST_CASE("the tutorial's schedules are those on file") {
  CHECK(to_text(tutorial(StrategyKind::fsdp, 2)) == golden("vit_tutorial_fsdp_w2.txt"));
  CHECK(to_text(tutorial(StrategyKind::ddp, 2)) == golden("vit_tutorial_ddp_w2.txt"));
  CHECK(to_text(tutorial(StrategyKind::single, 1)) == golden("vit_tutorial_single.txt"));
}

TEST_CASE("schedules on file are read and written without a change") {
  for (const char* name :
       {"vit_tutorial_fsdp_w2.txt", "vit_tutorial_ddp_w2.txt", "vit_tutorial_single.txt"}) {
    const std::string text = golden(name);
    const Schedule schedule = parse_schedule(text);
    CHECK(to_text(schedule) == text);
    CHECK_NOTHROW(validate(schedule));
  }
}

TEST_CASE("an action's line has every field that is not empty") {
  const Schedule schedule = small_fsdp();
  // Aligned, the embedding is 32 + 16 + 16 + 48 elements; padded 128, of which a rank has 64.
  CHECK(action_to_text(schedule, 1) ==
        "  1 ALL_GATHER                      group=embed            stream=gather "
        "channel=gather          writes=U0              bytes=256");
  CHECK(action_to_text(schedule, 4) ==
        "  4 LOAD_INPUT                                             stream=main"
        "                                                  bytes=4608");
}

TEST_CASE("the lines that schedule.h shows are those of a step of two blocks") {
  const models::TransformerSizes sizes{.layers = 2, .width = 64, .vocab = 100, .seq = 8};
  Strategy strategy;
  strategy.world_size = 2;
  const Schedule schedule = build_schedule(models::make_spec("two", sizes), strategy, Pass::train);
  std::ifstream header(SHARDLENS_SOURCE_DIR "/planner/schedule/schedule.h");
  int shown = 0;
  for (std::string line; std::getline(header, line);) {
    std::istringstream words(line.substr(std::min<size_t>(line.size(), 2)));
    int id = -1;
    std::string kind;
    if (!line.starts_with("// ") || !(words >> id >> kind) || id < 0 || id >= schedule.size() ||
        kind != to_string(schedule.action(id).kind)) {
      continue;
    }
    CHECK_THAT(with_single_blanks(action_to_text(schedule, id)),
               StartsWith(with_single_blanks(line.substr(2))));
    ++shown;
  }
  CHECK(shown == 12);
}

TEST_CASE("a line shows what is out of range instead of failing on it") {
  Schedule schedule = small_fsdp();
  schedule.actions[0].group = 99;
  schedule.actions[0].writes = {-5};
  CHECK_THAT(action_to_text(schedule, 0), ContainsSubstring("group=?99"));
  CHECK_THAT(action_to_text(schedule, 0), ContainsSubstring("writes=?-5"));
}

TEST_CASE("an unknown word is refused with its line") {
  const std::string text = to_text(small_fsdp());
  const auto refuses = [&](const std::string& damaged, const std::string& reason) {
    CHECK_THROWS_MATCHES(parse_schedule(damaged), std::invalid_argument,
                         MessageMatches(ContainsSubstring(reason)));
  };
  refuses("", "empty");
  refuses(replaced(text, "schedule 2", "schedule 3"), "line 1: version '3'");
  refuses(replaced(text, "strategy=fsdp", "strategy=zero3"), "line 1: unknown word 'zero3'");
  refuses(replaced(text, " shards=2", ""), "line 1: field shards is missing");
  refuses(replaced(text, "world=2", "world=2 world=2"), "line 1: field 'world' appears twice");
  refuses(replaced(text, "world=2", "world=2 pods=1"), "line 1: unknown field 'pods'");
  refuses(replaced(text, "world=2", "world=-2"), "line 1: '-2' is not a number");
  refuses(replaced(text, "world=2", "world=99999999999"), "is not a number in range");
  refuses(replaced(text, "unit 1 ", "unit 7 "), "line 3: number '7' where 1 comes next");
  refuses(replaced(text, "unit 1 attention0", "unit 1 embed"), "line 3: 'embed' appears twice");
  refuses(replaced(text, "unit 1 attention0", "unit 1"), "line 3: 2 words where 3 belong");
  refuses(replaced(text, "slot U1", "slot Q1"), "unknown kind of slot 'Q1'");
  refuses(replaced(text, "slot U1", "slot U0"), "'U0' appears twice");
  refuses(replaced(text, "group=embed", "group=nowhere"), "'nowhere' is not known");
  refuses(replaced(text, "parameters=", "parameters=3@,"), "PARAMETER@OFFSET+NUMEL");
  refuses(replaced(text, "LOSS", "GAIN"), "unknown word 'GAIN'");
  refuses(replaced(text, "waits=1\n", "waits=40\n"), "not an earlier action");
  refuses(replaced(text, "stream=gather", "stream="), "field stream is empty");
  refuses(text + "\n", "no keyword");
  refuses(text + text, "no other, is 'schedule'");
  refuses(text.substr(text.find('\n') + 1), "line 1: the first line");
}

TEST_CASE("no truncated schedule passes for a whole one") {
  const std::string text = to_text(small_fsdp());
  REQUIRE(read(text) == Verdict::valid);
  for (size_t size = 0; size + 1 < text.size(); ++size) {
    CAPTURE(size);
    REQUIRE(read(text.substr(0, size)) != Verdict::valid);
  }
}

TEST_CASE("damaged text is refused, found invalid or another valid schedule") {
  std::vector<int> outcomes(3);
  for (uint64_t seed = 0; seed < 6000; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 engine(seed);
    static const std::string whole = to_text(small_fsdp());
    std::string text = whole;
    const int64_t changes = tests::random_between(engine, 1, 3);
    for (int64_t i = 0; i < changes; ++i) damage(text, engine);
    ++outcomes[static_cast<size_t>(read(text))];
  }
  // The damage must reach the parser, the rules and the code after them.
  for (const int count : outcomes) CHECK(count > 20);
}

TEST_CASE("numbers at the end of their range do no harm") {
  const std::string text = to_text(small_fsdp());
  for (const std::string number : {"0", "1", "2147483647", "9223372036854775807"}) {
    for (size_t at = 0; at < text.size(); ++at) {
      const bool begins = at > 0 && !std::isdigit(text[at - 1]) && std::isdigit(text[at]);
      if (!begins) continue;
      size_t end = at;
      while (std::isdigit(text[end])) ++end;
      std::string damaged = text;
      CAPTURE(number, at);
      read(damaged.replace(at, end - at, number));
    }
  }
  SUCCEED("nothing but refusals and verdicts");
}
