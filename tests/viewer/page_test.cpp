// Tests the exported page, as text: what it says without its script, and that nothing in a
// recording can become markup or code. The script itself is tested in a browser: page_cases.py.

#include "viewer/page/page.h"

#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "base/units.h"
#include "tests/support/recordings/failing_recording.h"
#include "tests/support/recordings/view_recording.h"
#include "viewer/model/lane_builder.h"
#include "viewer/page/page_columns.h"
#include "viewer/paint/theme.h"

namespace shardlens::viewer {
namespace {

const std::string kHostile = "</script><script>alert(1)</script>\"'&<b>";

Run run_of(const std::string& name, const tests::ViewRecordingOptions& options) {
  const profiler::Profile profile = tests::view_recording(options);
  Run run{.path = name, .name = name, .strategy = {}, .ranks = {}};
  run.ranks.push_back({.path = name, .lane = lane_of(profile), .names = {}, .stamp = {}});
  run.ranks.front().names = ActionNames(profile.header);
  return run;
}

std::vector<Run> two_runs() {
  std::vector<Run> runs;
  runs.push_back(run_of("keep", {.keep_weights = true}));
  runs.push_back(run_of(kHostile, {.steps = 5}));
  return runs;
}

std::string page_of(const std::vector<Run>& runs, const ViewState& state = {}) {
  std::ostringstream out;
  write_page(runs, state, out);
  return out.str();
}

nlohmann::json facts_of(const std::string& page) {
  const std::string begins = "id=\"facts\">";
  const size_t begin = page.find(begins) + begins.size();
  return nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
}

bool has(const std::string& page, const std::string& text) {
  return page.find(text) != std::string::npos;
}

}  // namespace

TEST_CASE("a page shows its peaks without a script, and its facts are those of the lanes") {
  const auto runs = two_runs();
  const std::string page = page_of(runs);
  CHECK(page.starts_with("<!doctype html>"));
  const nlohmann::json facts = facts_of(page);
  REQUIRE(facts["lanes"].size() == 2);
  for (size_t i = 0; i < runs.size(); ++i) {
    const Extent& peak = runs[i].at_peak().lane.peak();
    CHECK(has(page, "(" + std::to_string(peak.max_bytes) + " bytes)"));
    const nlohmann::json& lane = facts["lanes"][i];
    CHECK(lane["name"] == runs[i].name + ", rank 0");
    CHECK(lane["peak"]["bytes"] == peak.max_bytes);
    int64_t sum = 0;
    for (const auto& bytes : lane["peak"]["categories"]) sum += bytes.get<int64_t>();
    CHECK(sum == peak.max_bytes);
  }
  CHECK(facts["lanes"][0]["steps"] == 3);
  CHECK(facts["lanes"][0]["comparison"].is_null());
  const nlohmann::json& comparison = facts["lanes"][1]["comparison"];
  int64_t change = 0;
  for (const auto& row : comparison["rows"]) change += row["change_bytes"].get<int64_t>();
  CHECK(change ==
        runs[1].at_peak().lane.peak().max_bytes - runs[0].at_peak().lane.peak().max_bytes);
}

TEST_CASE("a page has the colours of the viewer") {
  const std::string page = page_of(two_runs());
  const nlohmann::json facts = facts_of(page);
  REQUIRE(facts["categories"].size() == size_t{kCategoryCount});
  for (const auto& category : facts["categories"]) {
    const Color color = color_of(static_cast<Category>(category["id"].get<int>()));
    CHECK(category["color"] == nlohmann::json{color.r, color.g, color.b});
  }
  for (const Theme theme : {Theme::light, Theme::dark, Theme::contrast}) {
    const Color color = colors_of(theme).accent;
    std::ostringstream css;
    css << std::hex << "--accent: #" << (color.r >> 4) << (color.r & 15) << (color.g >> 4)
        << (color.g & 15) << (color.b >> 4) << (color.b & 15) << ";";
    CHECK(has(page, css.str()));
  }
}

TEST_CASE("no name in a recording becomes markup, and a page loads nothing") {
  auto runs = two_runs();
  const std::string plain = page_of(runs);
  CHECK(has(plain, "&lt;/script&gt;&lt;script&gt;alert(1)&lt;/script&gt;&quot;'&amp;&lt;b&gt;"));
  CHECK_FALSE(has(plain, "<script>alert"));
  CHECK_FALSE(has(plain, "<b>alert"));
  CHECK_FALSE(has(plain, "http:"));
  CHECK_FALSE(has(plain, "https:"));
  CHECK_FALSE(has(plain, "src="));
  CHECK(has(plain, "default-src 'none'"));
}

TEST_CASE("a page shows its recording's judgement beside the number") {
  profiler::Profile profile = tests::view_recording({});
  profile.judgement.state = profiler::RecordingState::damaged;
  profile.judgement.missing_from_ns = 1'000'000;
  profile.judgement.lost_events = 7;
  std::vector<Run> runs;
  runs.push_back({.path = "a", .name = "a", .strategy = {}, .ranks = {}});
  runs.front().ranks.push_back({.path = "a", .lane = lane_of(profile), .names = {}, .stamp = {}});
  const std::string page = page_of(runs);
  const profiler::Judgement judgement = runs.front().judgement();
  CHECK(has(page, "This recording: " + profiler::judgement_text(judgement)));
  CHECK(has(page, "<b>" + std::string(profiler::bound_prefix(judgement)) +
                      bytes_text(runs.front().at_peak().lane.peak().max_bytes) + "</b>"));
}

TEST_CASE("a step like the previous one costs little more than its times") {
  const Run few = run_of("few", {.steps = 100});
  const Run many = run_of("many", {.steps = 200});
  const auto size_of = [](const Run& run) {
    const Lane& lane = run.ranks.front().lane;
    return packed_changes(lane, kinds_of(lane)).size();
  };
  const auto changes = few.ranks.front().lane.changes();
  const auto more = many.ranks.front().lane.changes() - changes;
  CHECK(static_cast<double>(size_of(many) - size_of(few)) < 0.5 * static_cast<double>(more));
}

TEST_CASE("a page says without a script who ran out of memory, what grows, and what is reserved") {
  const profiler::Profile profile = tests::failing_recording();
  std::vector<Run> runs(1);
  runs[0].name = "failed";
  runs[0].ranks.push_back({.path = "failed", .lane = lane_of(profile), .names = {}, .stamp = {}});
  const std::string page = page_of(runs);
  CHECK(has(page, "out of memory in step 7 at " + tests::kFailingLine));
  CHECK(has(page, "grows by 2.00 MiB a step"));
  CHECK(has(page, "headroom none: memory ran out"));
  CHECK(has(page, "<details><summary>reserved memory: its parts</summary>"));
  const nlohmann::json lane = facts_of(page)["lanes"][0];
  CHECK(lane["reserved_peak_bytes"] == tests::kFailingReservedPeak);
  REQUIRE(lane["failures"].size() == 1);
  CHECK(lane["failures"][0]["us"] == static_cast<double>(profile.events.back().time_ns) / 1e3);
}

}  // namespace shardlens::viewer
