// Histories as `shardlens record` leaves them, made up here: what the process has noted is merged
// into PyTorch's events.
#include "profiler/exchange/import_history.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "profiler/exchange/import_memory_viz.h"
#include "profiler/report/recording_report.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace shardlens;
using namespace shardlens::profiler;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kSegment = int64_t{1} << 32;

json entry(const char* action, int64_t place_mib, int64_t mib) {
  return {{"action", action},
          {"addr", kSegment + place_mib * kMiB},
          {"size", mib * kMiB},
          {"stream", 0},
          {"time_us", 1000}};
}

/// Two blocks of 4 and 8 MiB; the first is freed, and its memory is kept unused until the end.
json history() {
  const json trace = {entry("segment_alloc", 0, 20), entry("alloc", 0, 4),
                      entry("alloc", 4, 8),          entry("free_requested", 0, 4),
                      entry("alloc", 12, 2),         entry("free_completed", 0, 4)};
  const json segment = {{"address", kSegment},
                        {"total_size", 20 * kMiB},
                        {"device", 0},
                        {"stream", 0},
                        {"segment_type", "large"},
                        {"blocks",
                         {{{"size", 4 * kMiB}, {"state", "inactive"}},
                          {{"size", 8 * kMiB}, {"state", "active_allocated"}},
                          {{"size", 2 * kMiB}, {"state", "active_allocated"}},
                          {{"size", 6 * kMiB}, {"state", "inactive"}}}}};
  json said = {{"device", "null:h100"},
               {"gpu", "an H100"},
               {"capacity_bytes", 80},
               {"rank", 5},
               {"world_size", 16},
               {"notice", "zeros"},
               {"config", "{}"},
               {"libraries", "PyTorch 2.99\n"},
               {"device_index", 0},
               {"allocations", 3},
               {"frees", 1},
               {"lost_events", 0},
               {"marks", json::array()}};
  return {{"device_traces", json::array({trace})},
          {"segments", json::array({segment})},
          {"shardlens", said}};
}

json mark(int64_t allocations, int64_t frees, json what) {
  what["allocations"] = allocations;
  what["frees"] = frees;
  return what;
}

json step(int64_t allocations, int64_t frees, int64_t number) {
  return mark(allocations, frees, {{"step", number}});
}

json block(int64_t allocations, int64_t frees, int64_t place_mib, Category category) {
  return mark(allocations, frees,
              {{"address", kSegment + place_mib * kMiB}, {"category", static_cast<int>(category)}});
}

Profile imported(const json& history) { return import_history(read_snapshot(history.dump())); }

std::vector<EventKind> kinds_of(const Profile& profile) {
  std::vector<EventKind> kinds;
  for (const Event& event : profile.events) kinds.push_back(event.kind);
  return kinds;
}

}  // namespace

TEST_CASE("a process's own notes are merged into PyTorch's history") {
  json made = history();
  made["shardlens"]["marks"] = {step(1, 0, 0), block(2, 0, 0, Category::gradient),
                                block(2, 1, 4, Category::parameter_shard), step(2, 1, 1),
                                step(3, 1, 2)};
  const Profile profile = imported(made);
  using enum EventKind;
  CHECK(kinds_of(profile) == std::vector{alloc, alloc, phase, step, alloc, recategorise, free,
                                         recategorise, hold, step, alloc, release});
  CHECK(profile.events[5].address == kSegment);
  CHECK(profile.events[5].category == Category::gradient);
  CHECK(profile.events[9].value == 1);
  CHECK(profile.header.rank == 5);
  CHECK(profile.header.world_size == 16);
  CHECK(profile.header.device == "null:h100");
  CHECK(profile.header.gpu == "an H100");
  CHECK(profile.header.capacity_bytes == 80);
  CHECK(profile.header.notice == "zeros");
  CHECK(profile.header.libraries == "PyTorch 2.99\n");
}

TEST_CASE("a history that has forgotten its first events is judged, and keeps the step it is in") {
  json made = history();
  auto& trace = made["device_traces"][0];
  trace.erase(trace.begin(), trace.begin() + 2);  // a segment and an allocation
  made["shardlens"]["lost_events"] = 7;
  made["shardlens"]["allocations"] = 10;
  made["shardlens"]["frees"] = 2;
  made["shardlens"]["marks"] = {step(2, 0, 3), block(3, 0, 16, Category::gradient), step(9, 2, 4)};
  const tests::TemporaryFolder folder;
  tests::write_file(folder.file("rank0.history"), made.dump());
  record_history(folder.file("rank0.history"), folder.file("rank0.slp"));
  const RankReport report = report_of(folder.file("rank0.slp"));
  CHECK(report.judgement.lost_events == 7);
  CHECK(report.judgement.bound() == PeakBound::about);
  CHECK(report.peak_bytes() == 12 * kMiB);
  CHECK(report.unmatched == 0);
  REQUIRE(report.steps.size() == 2);
  CHECK(report.steps[0].step == 3);
  CHECK(report.steps[1].step == 4);
}

TEST_CASE("a file that is not a history of ours is refused") {
  json made = history();
  made.erase("shardlens");
  CHECK_THROWS_MATCHES(imported(made), std::invalid_argument,
                       Catch::Matchers::MessageMatches(ContainsSubstring("it is not a history")));
}
