// Compares the memory of steps with the report's, and with sums over all blocks, and the bytes that
// TensorBoard gets with what TensorFlow writes. tensorboard_cases.py reads a file by TensorBoard.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <numeric>
#include <sstream>
#include <string>
#include <string_view>

#include "profiler/commands/exchange_commands.h"
#include "profiler/exchange/tensorboard/export_tensorboard.h"
#include "profiler/exchange/tensorboard/step_memory.h"
#include "profiler/exchange/write_recording.h"
#include "profiler/report/report.h"
#include "tests/support/recordings/small_recording.h"
#include "tests/support/recordings/synthetic_profile.h"
#include "tests/support/temporary_folder.h"

namespace {

using namespace shardlens;
using namespace shardlens::profiler;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

}  // namespace

TEST_CASE("the memory of each step is the report's, and its categories add up to it") {
  for (const uint32_t seed : {1U, 2U, 3U}) {
    CAPTURE(seed);
    const Profile profile =
        tests::synthetic_profile({.seed = seed, .steps = 5, .layers = 3 + static_cast<int>(seed)});
    const RankReport report = analyse(profile);
    const std::vector<StepMemory> steps = step_memory(events_of(profile));
    REQUIRE(steps.size() == 5);
    REQUIRE(report.steps.size() == 5);
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto& bytes = report.steps[i].bytes;
      CHECK(steps[i].step == report.steps[i].step);
      CHECK(steps[i].bytes == bytes[static_cast<size_t>(report.main)]);
      CHECK(steps[i].reserved_bytes == bytes[static_cast<size_t>(Space::segment)]);
      const auto& categories = steps[i].categories;
      CHECK(std::accumulate(categories.begin(), categories.end(), int64_t{0}) == steps[i].bytes);
    }
    const auto highest = std::ranges::max_element(steps, {}, &StepMemory::bytes);
    if (report.main_space()->peak_at.step != highest->step) continue;
    CHECK(highest->categories == report.main_space()->given);
    CHECK(highest->time_ns == report.main_space()->peak_at.time_ns);
  }
}

TEST_CASE("a file for TensorBoard begins as TensorFlow's do, and has a record for each step") {
  Header header;
  header.start_realtime_ns = 1'700'000'000'000'000'000;
  CHECK(tensorboard_file(header) == "events.out.tfevents.1700000000.shardlens");
  StepMemory step{.step = 7, .time_ns = 5, .bytes = 3 << 20, .reserved_bytes = 4 << 20};
  step.categories[static_cast<size_t>(Category::activation)] = 3 << 20;
  std::ostringstream out;
  export_tensorboard(header, std::vector{step}, out);
  const std::string bytes = out.str();
  constexpr std::string_view kBegin("\x18\0\0\0\0\0\0\0\xa3\x7fK\"\t", 13);
  CHECK(bytes.starts_with(kBegin));
  CHECK_THAT(bytes, ContainsSubstring("\x1a\x0d"
                                      "brain.Event:2"));
  for (const char* tag : {"peak MiB/allocated", "peak MiB/reserved", "peak MiB/activation"}) {
    CHECK_THAT(bytes, ContainsSubstring(tag));
  }
  CHECK_THAT(bytes, !ContainsSubstring("gradient"));
}

TEST_CASE("a run is exported to TensorBoard, or refused in one line") {
  const tests::TemporaryFolder folder;
  const Profile profile = tests::synthetic_profile({.seed = 4, .steps = 3, .layers = 2});
  const std::string recording = folder.file("rank0.slp");
  write_recording(profile, recording);
  const std::string board = folder.file("board");
  const fs::path rank = fs::path(board) / ("rank" + std::to_string(profile.header.rank));
  CHECK_THAT(export_command({recording, "--tensorboard", board}, {}),
             ContainsSubstring("wrote " + (rank / tensorboard_file(profile.header)).string()));
  CHECK_THROWS_WITH(export_command({recording, "--tensorboard", board, "--points", "9"}, {}),
                    ContainsSubstring("--points: TensorBoard gets every step"));
  CHECK_THROWS_WITH(export_command({recording, "--tensorboard", board, "--format", "csv", "--out",
                                    folder.file("out.csv")},
                                   {}),
                    ContainsSubstring("see --help"));
  Profile stepless = profile;
  std::erase_if(stepless.events, [](const Event& event) { return event.kind == EventKind::step; });
  write_recording(stepless, recording);
  CHECK_THROWS_WITH(export_command({recording, "--tensorboard", folder.file("other")}, {}),
                    ContainsSubstring("has no training steps"));
  CHECK_FALSE(fs::exists(folder.file("other")));
}
