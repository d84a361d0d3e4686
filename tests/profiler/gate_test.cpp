#include "profiler/commands/gate.h"

#include <algorithm>
#include <array>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "profiler/compare/comparability.h"
#include "tests/support/recordings/small_recording.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::profiler;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

/// Files whose content is the MiB of their activations.
RankReport analyse_small(const std::string& path) {
  return analyse(tests::small_recording(0, std::stoll(tests::read_file(path)) << 20));
}

struct Files {
  Files() {
    tests::write_file(base(), "3");
    tests::write_file(grown(), "5");
  }
  std::string base() const { return folder.file("base.slp"); }
  std::string grown() const { return folder.file("grown.slp"); }

  tests::TemporaryFolder folder;
};

}  // namespace

TEST_CASE("a gate fails only if a peak grew by more than the limit") {
  const Files files;
  const auto gate = [&](const std::vector<std::string>& arguments) {
    return gate_command(arguments, analyse_small).exit_code;
  };
  CHECK(gate({files.base(), files.base()}) == 0);
  CHECK(gate({files.base(), files.base(), "--fail-above", "0%"}) == 0);
  CHECK(gate({files.base(), files.grown()}) == 1);
  CHECK(gate({files.base(), files.grown(), "--fail-above", "28.5%"}) == 1);
  CHECK(gate({files.base(), files.grown(), "--fail-above", "28.6%"}) == 0);
  CHECK(gate({files.grown(), files.base()}) == 0);
}

TEST_CASE("a gate writes growth as Markdown, also if there is none") {
  const Files files;
  const std::string markdown = files.folder.file("gate.md");
  const auto outcome =
      gate_command({files.base(), files.grown(), "--markdown", markdown}, analyse_small);
  CHECK(outcome.error ==
        "shardlens gate: the peak of rank 0 grew too much: +28.57 %, the limit is 2 %; B's peak is "
        "2.00 MiB above A's (+28.6 %): +2.00 MiB activation\n");
  const std::string text = tests::read_file(markdown);
  CHECK_THAT(text, ContainsSubstring("### GPU memory: the peak of rank 0 grew too much"));
  CHECK_THAT(text, ContainsSubstring("| activation | 3.00 MiB | 5.00 MiB | +66.67 % |"));
  gate_command({files.base(), files.base(), "--markdown", markdown}, analyse_small);
  CHECK_THAT(tests::read_file(markdown), ContainsSubstring("is within the limit: +0.00 %"));
}

TEST_CASE("reserved memory is gated, too") {
  RunDiff diff;
  diff.ranks.push_back({.peak = {100, 101}, .reserved = Pair{100, 105}});
  CHECK(diff.worst_gated_pair().gated_growth_percent() == 5);
  CHECK_THAT(gate_markdown(diff, 2), ContainsSubstring("reserved memory of rank 0 grew too much"));
}

namespace {

/// Makes a recording that cannot be compared with the small one.
struct SpoiledRecording {
  std::string word;
  std::string reason;  // a part of what the refusal says
  std::function<void(Profile&)> spoil;
};

void end_after_step(Profile& profile, int64_t step) {
  const auto next = std::ranges::find_if(profile.events, [&](const Event& event) {
    return event.kind == EventKind::step && event.value > step;
  });
  profile.events.erase(next, profile.events.end());
}

const std::vector<SpoiledRecording>& spoiled() {
  static const std::vector<SpoiledRecording> all = {
      {"damaged", "B, rank 0: damaged from 0.002 s on: the peak is a lower bound",
       [](Profile& profile) {
         profile.judgement = {.state = RecordingState::damaged, .missing_from_ns = 2'000'000};
       }},
      {"growing", "B, rank 0: still being written",
       [](Profile& profile) { profile.judgement.state = RecordingState::growing; }},
      {"killed", "B, rank 0: not closed, its program was killed",
       [](Profile& profile) { profile.judgement.state = RecordingState::killed; }},
      {"newer", "B, rank 0: written by a later version",
       [](Profile& profile) { profile.judgement.state = RecordingState::newer; }},
      {"lost", "B, rank 0: 3 events were lost",
       [](Profile& profile) { profile.judgement.lost_events = 3; }},
      {"out-of-memory", "only B ran out of memory",
       [](Profile& profile) {
         profile.events.push_back({.time_ns = profile.events.back().time_ns,
                                   .value = int64_t{1} << 40,
                                   .kind = EventKind::out_of_memory});
       }},
      {"ranks", "A is rank 0, B rank 1", [](Profile& profile) { profile.header.rank = 1; }},
      {"world", "A has 2 ranks, B 4", [](Profile& profile) { profile.header.world_size = 4; }},
      {"device", "A has null:h200 (NVIDIA H200, 141.00 GiB), B null:h100",
       [](Profile& profile) { profile.header.device = "null:h100"; }},
      {"steps", "A has 3 steps, 0 to 2, B 2 steps, 0 to 1",
       [](Profile& profile) { end_after_step(profile, 1); }},
  };
  return all;
}

}  // namespace

TEST_CASE("a gate refuses to compare with words that docs has a row for") {
  const Files files;
  const std::string docs = tests::read_file(SHARDLENS_SOURCE_DIR "/docs/gate.md");
  CHECK(spoiled().size() == kObstacles);
  for (const SpoiledRecording& one : spoiled()) {
    CAPTURE(one.word);
    const auto analyse_spoiled = [&](const std::string& path) {
      Profile profile = tests::small_recording();
      if (path == files.grown()) one.spoil(profile);
      return analyse(profile);
    };
    CHECK_THAT(docs, ContainsSubstring("| `" + one.word + "` |"));
    const std::string markdown = files.folder.file("refused.md");
    CHECK_THROWS_MATCHES(
        gate_command({files.base(), files.grown(), "--markdown", markdown}, analyse_spoiled),
        std::invalid_argument,
        MessageMatches(ContainsSubstring(one.reason) && ContainsSubstring("--allow " + one.word)));
    CHECK_FALSE(std::filesystem::exists(markdown));
    for (const SpoiledRecording& other : spoiled()) {
      const auto gate = [&] {
        return gate_command({files.base(), files.grown(), "--allow", other.word}, analyse_spoiled);
      };
      if (other.word != one.word) {
        CHECK_THROWS_AS(gate(), std::invalid_argument);
        continue;
      }
      const CommandOutcome outcome = gate();
      CHECK(outcome.exit_code == 0);
      CHECK_THAT(outcome.out, ContainsSubstring("allowed: ") && ContainsSubstring(one.reason));
    }
  }
}

TEST_CASE("a gate compares ranks that both sides have, or refuses") {
  RunDiff diff;
  diff.ranks.emplace_back();
  diff.only_a = {2};
  diff.only_b = {3, 4};
  const std::vector<FoundObstacle> found = obstacles_between(diff);
  REQUIRE(found.size() == 3);
  CHECK(found.front().text == "only A has rank 2");
  CHECK_THAT(refusal(found), ContainsSubstring("--allow ranks"));
  CHECK(remove_allowed(found, std::array{Obstacle::ranks}).empty());
}

TEST_CASE("a gate refuses recordings that it cannot compare") {
  const Files files;
  const auto refused = [&](const std::vector<std::string>& arguments, const std::string& part) {
    CHECK_THROWS_MATCHES(gate_command(arguments, analyse_small), std::invalid_argument,
                         MessageMatches(ContainsSubstring(part)));
  };
  refused({files.base()}, "see --help");
  refused({files.base(), files.grown(), "--fail-above", "x"}, "--fail-above x: not a percentage");
  refused({files.base(), files.folder.file("none.slp")}, "no such file");
  refused({files.base(), files.grown(), "--allow", "all"}, "--allow all: choose from damaged");
}

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

PeakBand band(int64_t falling, int64_t least, int64_t most) {
  return {falling * kMiB, least * kMiB, most * kMiB};
}

/// Returns a report with these ranges of the peak, that of reserved being exact.
RankReport with_band(int64_t mebibytes, const char* device, const PeakBand& allocated) {
  RankReport report = analyse(tests::small_recording(0, mebibytes << 20));
  report.header.device = device;
  report.bands = PeakBands{.allocated = allocated, .reserved = band(9, 9, 9), .orders = 40};
  return report;
}

}  // namespace

TEST_CASE("a gate doubts its answer where other addresses would give another") {
  const Files files;
  PeakBand base = band(7, 7, 7), grown = band(9, 9, 9);
  const auto gate = [&] {
    return gate_command({files.base(), files.grown(), "--fail-above", "10%"},
                        [&](const std::string& path) {
                          const bool is_base = path == files.base();
                          return with_band(is_base ? 3 : 5, "null:h100", is_base ? base : grown);
                        });
  };
  CHECK(gate().exit_code == 1);
  CHECK(gate().error.find("in doubt") == std::string::npos);
  base = band(7, 7, 9);
  CHECK(gate().exit_code == 1);
  CHECK_THAT(gate().error, ContainsSubstring("in doubt: the peak of rank 0 grows by +0.00 % to "
                                             "+28.57 %, by the driver's addresses"));
}

TEST_CASE("a gate compares runs on GPUs as the same order of addresses has them") {
  const Files files;
  const auto gate = [&](const char* device) {
    return gate_command({files.base(), files.grown()},
                        [&](const std::string& path) {
                          return with_band(path == files.base() ? 3 : 5, device, band(7, 7, 9));
                        })
        .exit_code;
  };
  CHECK(gate("null:h100") == 1);
  CHECK(gate("cuda") == 0);
}
