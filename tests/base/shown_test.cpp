#include "base/shown.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "profiler/compare/diff.h"
#include "profiler/recording/events.h"
#include "profiler/report/report.h"
#include "tests/support/recordings/small_recording.h"

using namespace shardlens;
using namespace std::string_literals;

namespace {

/// True if a terminal would do anything other than print the character.
bool is_plain(const std::string& text) {
  for (const unsigned char c : text) {
    if (c < ' ' || c == 0x7f) return false;
  }
  for (const char* code :
       {"\xc2\x80", "\xc2\x9b", "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x80\xa8"}) {
    if (text.find(code) != std::string::npos) return false;
  }
  return !nlohmann::json(text).dump().empty();  // which throws for invalid UTF-8
}

}  // namespace

TEST_CASE("characters that act on terminals are spelled out, all others stay") {
  CHECK(shown("plain, é, 漢字, 🙂, \\n") == "plain, é, 漢字, 🙂, \\n");
  CHECK(shown("\x1b[31mred\x1b[0m") == "\\u001b[31mred\\u001b[0m");
  CHECK(shown("two\nlines\r\ttab") == "two\\nlines\\u000d\\ttab");
  CHECK(shown("\x7f\0end"s) == "\\u007f\\u0000end");
  CHECK(shown("\xc2\x9b"
              "31m") == "\\u009b31m");
  CHECK(shown("a\xe2\x80\xae"
              "b") == "a\\u202eb");
  CHECK(shown("\xff\xc3(\xe2\x82") == "\\xff\\xc3(\\xe2\\x82");
  CHECK(shown("\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80") ==
        "\\xc0\\xaf\\xed\\xa0\\x80\\xf4\\x90\\x80\\x80");
  CHECK(shown_lines("one\ntwo\x1b\n") == "one\ntwo\\u001b\n");
  CHECK(is_utf8("é"));
  CHECK_FALSE(is_utf8("\xe9"));
}

TEST_CASE("random bytes are shown as plain text") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937 random(seed);
  for (int i = 0; i < 2000; ++i) {
    std::string text(random() % 40, '\0');
    for (char& c : text) c = static_cast<char>(random() % 3 == 0 ? random() % 32 : random());
    CAPTURE(shown(text));
    CHECK(is_plain(shown(text)));
  }
}

TEST_CASE("JSON made safe to print stays the same JSON") {
  const nlohmann::json json = {{"label", "\x1b[2J\n\x7f\xc2\x85"}};
  CHECK(nlohmann::json::parse(shown_lines(json.dump(2))) == json);
}

TEST_CASE("reports and diffs print no control characters of a recording") {
  profiler::Profile profile = tests::small_recording();
  const std::string evil = "\x1b]0;owned\x07\nrank 7 of 8 on nothing\xff";
  for (std::string& text : profile.strings) {
    if (!text.empty()) text += evil;
  }
  for (std::string* text : {&profile.header.device, &profile.header.gpu, &profile.header.notice}) {
    *text += evil;
  }
  profiler::Profile other = profile;
  for (profiler::Event& event : other.events) event.value += 512;
  const auto lines_of = [](const std::string& text) { return std::ranges::count(text, '\n'); };
  const std::string report = profiler::report_text({profiler::analyse(profile)});
  const std::string diff = profiler::diff_text(
      profiler::diff_runs({profiler::analyse(profile)}, {profiler::analyse(other)}));
  for (const std::string& text : {report, diff}) {
    CHECK(text == shown_lines(text));
    CHECK(text.find("\nrank 7 of 8") == std::string::npos);
  }
  CHECK(report.find("\\u001b]0;owned\\u0007\\nrank 7") != std::string::npos);
  CHECK(lines_of(report) ==
        lines_of(profiler::report_text({profiler::analyse(tests::small_recording())})));
}
