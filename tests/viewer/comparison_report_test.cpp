// The report says the same as the picture, for readers who cannot see the picture.

#include "viewer/scene/panels/comparison_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>

#include "base/output_file.h"
#include "base/units.h"
#include "profiler/record/record_verdict.h"
#include "profiler/report/recording_report.h"
#include "tests/support/recordings/failing_recording.h"
#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/view_recording.h"
#include "tests/support/temporary_folder.h"

namespace shardlens::viewer {
namespace {

std::vector<Run> two_runs() {
  const tests::TemporaryFolder folder;
  tests::write_profile(folder.file("keep.slp"), tests::view_recording({.keep_weights = true}));
  tests::write_profile(folder.file("lean <&>.slp"),
                       tests::view_recording({.activation_bytes = 2 << 20}));
  OpenedRuns opened = open_runs({folder.file("keep.slp"), folder.file("lean <&>.slp")});
  REQUIRE(opened.messages.empty());
  return std::move(opened.runs);
}

}  // namespace

TEST_CASE("the text has peaks, places, changes and the largest blocks") {
  const std::string text = comparison_report(two_runs(), 0, ReportFormat::text);
  CHECK(text.starts_with("Memory of 2 runs, compared with keep\n"));
  CHECK(text.find("  fsdp, keeps weights\n  peak ") != std::string::npos);
  CHECK(text.find("step 0, ") != std::string::npos);
  CHECK(text.find(" less (-") != std::string::npos);
  CHECK(text.find("headroom ") != std::string::npos);
  CHECK(text.find("Largest at the peak of lean <&>") != std::string::npos);
}

TEST_CASE("the JSON's categories add up to its peak") {
  const auto runs = two_runs();
  const auto json = nlohmann::json::parse(comparison_report(runs, 1, ReportFormat::json));
  CHECK(json["schema"] == "shardlens.view/1");
  CHECK(json["baseline"] == "lean <&>");
  CHECK(json["space"] == "device");
  REQUIRE(json["strategies"].size() == 2);
  for (size_t i = 0; i < 2; ++i) {
    const auto& strategy = json["strategies"][i];
    int64_t sum = 0;
    for (const auto& bytes : strategy["at_peak"]["categories"]) sum += bytes.get<int64_t>();
    CHECK(sum == strategy["peak_allocated_bytes"]);
    CHECK(sum == runs[i].at_peak().lane.peak().max_bytes);
  }
  CHECK(json["strategies"][1]["growth_bytes"] == 0);
  CHECK(json["strategies"][0]["growth_bytes"] > 0);
}

TEST_CASE("the comparison is in the JSON and the text, and adds up to both peaks") {
  const auto runs = two_runs();
  const auto json = nlohmann::json::parse(comparison_report(runs, 0, ReportFormat::json));
  const auto& base = json["strategies"][0];
  const auto& other = json["strategies"][1];
  CHECK(base["comparison"].is_null());
  const auto& comparison = other["comparison"];
  const int64_t in_both = comparison["in_both_bytes"];
  CHECK(in_both + comparison["only_baseline_bytes"].get<int64_t>() == base["peak_allocated_bytes"]);
  CHECK(in_both + comparison["only_here_bytes"].get<int64_t>() == other["peak_allocated_bytes"]);
  int64_t change = 0;
  for (const auto& row : comparison["rows"]) {
    CHECK_FALSE(row["place"].get<std::string>().empty());
    change += row["change_bytes"].get<int64_t>();
  }
  CHECK(change == other["growth_bytes"]);
  const std::string text = comparison_report(runs, 0, ReportFormat::text);
  CHECK(text.find("\nChanged from keep to lean <&>\n") != std::string::npos);
  CHECK(text.find("  " + comparison["rows"][0]["place"].get<std::string>() + " (") !=
        std::string::npos);
}

TEST_CASE("the CSV has a line for each strategy and category") {
  const std::string csv = comparison_report(two_runs(), 0, ReportFormat::csv);
  CHECK(csv.starts_with("strategy,category,bytes,growth_bytes,recording\n\"keep\",all,"));
  CHECK(csv.find("\n\"lean <&>\",activation,") != std::string::npos);
}

TEST_CASE("a range is described by its own highest moments") {
  const auto runs = two_runs();
  const ReportRange range{Alignment::step, {1.75, 2}};
  const auto json = nlohmann::json::parse(comparison_report(runs, 0, ReportFormat::json, range));
  CHECK(json["range"]["axis"] == "step");
  CHECK(json["range"]["begin"] == 1.75);
  for (size_t i = 0; i < 2; ++i) {
    const Lane& lane = runs[i].at_peak().lane;
    const auto& stretches = lane.arrays().stretches;
    const auto step = std::ranges::find(stretches, 1, &Stretch::number);
    REQUIRE(step != stretches.end());
    // Computed without pyramid and warp: the sums of live memory, one change after the other.
    const double begin_ns = static_cast<double>(step->begin_ns) +
                            0.75 * static_cast<double>(step->end_ns - step->begin_ns);
    int64_t highest = 0;
    int64_t now = 0;
    for (int64_t change = 0; change < lane.changes(); ++change) {
      const auto time_ns = static_cast<double>(lane.time_of(change));
      if (time_ns >= static_cast<double>(step->end_ns)) break;
      const uint32_t word = lane.arrays().words[static_cast<size_t>(change)];
      const int64_t bytes = lane.arrays().blocks[block_of(word)].given_bytes;
      if (time_ns >= begin_ns) highest = std::max(highest, now);
      now += is_free(word) ? -bytes : bytes;
    }
    highest = std::max(highest, now);
    CHECK(highest < lane.peak().max_bytes);
    const auto& strategy = json["strategies"][i];
    CHECK(strategy["peak_allocated_bytes"] == highest);
    int64_t sum = 0;
    for (const auto& bytes : strategy["at_peak"]["categories"]) sum += bytes.get<int64_t>();
    CHECK(sum == highest);
    CHECK(strategy["step_peak_allocated_bytes"].is_null());
  }
  const std::string text = comparison_report(runs, 0, ReportFormat::text, range);
  CHECK(text.starts_with("Memory of 2 runs, compared with keep, from 1.75 to 2 (step)\n"));
  CHECK(text.find("from the third step on") == std::string::npos);
}

TEST_CASE("an empty range says so") {
  const auto runs = two_runs();
  const ReportRange range{Alignment::step, {100, 200}};
  CHECK(comparison_report(runs, 0, ReportFormat::text, range)
            .find("nothing is allocated in this range") != std::string::npos);
}

TEST_CASE("the kind of a report follows from its extension") {
  CHECK(report_format("a.txt") == ReportFormat::text);
  CHECK(report_format("b/a.csv") == ReportFormat::csv);
  CHECK_THROWS_AS(report_format("a.pdf"), std::invalid_argument);
}

TEST_CASE("a report says who ran out of memory, what grows, and the same headroom as record") {
  constexpr int64_t kBeside = 20 << 20;
  const tests::TemporaryFolder folder;
  for (const bool fails : {true, false}) {
    tests::write_profile(folder.file("rank0.slp"), tests::failing_recording(fails));
    write_text(folder.file("rank0.json"),
               fmt::format(R"({{"beside_pytorch":{{"bytes":{},"from":"given"}}}})", kBeside));
    const auto runs = open_runs({folder.file("rank0.slp")}).runs;
    REQUIRE(runs.size() == 1);
    const std::string text = comparison_report(runs, 0, ReportFormat::text);
    const auto json =
        nlohmann::json::parse(comparison_report(runs, 0, ReportFormat::json))["strategies"][0];
    CAPTURE(text);
    const auto has = [&](const std::string& words) { return text.find(words) != text.npos; };
    CHECK(has("grows by 2.00 MiB a step from step 2 on: " + tests::kKeptLine));
    CHECK(has("reserved peak"));
    CHECK(has("beside used blocks"));
    CHECK(json["beside_pytorch_bytes"] == kBeside);
    CHECK(json["reserved_peak_bytes"] == tests::kFailingReservedPeak);
    const auto report = profiler::report_of(folder.file("rank0.slp"));
    const std::string verdict =
        profiler::verdict_of(report, {.is_known = true}, kBeside, std::nullopt).line;
    CAPTURE(verdict);
    if (fails) {
      CHECK(has("  out of memory in step 7 at " + tests::kFailingLine +
                " (activation): 192.00 MiB asked, 160.00 MiB free on the device; PyTorch had "
                "reserved 96.00 MiB, with 32.00 MiB in its largest free block\n"));
      CHECK(has("headroom none: memory ran out"));
      CHECK(json["headroom_bytes"].is_null());
      REQUIRE(json["out_of_memory"].size() == 1);
      CHECK(json["out_of_memory"][0]["place"] == tests::kFailingLine);
      CHECK(json["out_of_memory"][0]["asked_bytes"] == tests::kFailingAsked);
    } else {
      const int64_t free = tests::kFailingCapacity - tests::kFailingReservedPeak - kBeside;
      CHECK_FALSE(has("out of memory"));
      CHECK(has(fmt::format("headroom {}: ", bytes_text(free))));
      CHECK(verdict.find(bytes_text(free) + " free") != verdict.npos);
      CHECK(json["headroom_bytes"] == free);
    }
  }
}

TEST_CASE("a report has a row for each category of a line, and calls parameters what they are") {
  const tests::TemporaryFolder folder;
  tests::write_profile(folder.file("rank0.slp"), tests::failing_recording(false));
  const auto runs = open_runs({folder.file("rank0.slp")}).runs;
  const std::string text = comparison_report(runs, 0, ReportFormat::text);
  CAPTURE(text);
  CHECK(text.find("20.00 MiB  model.py:10 build (parameters, 1 block)") != text.npos);
  CHECK(text.find("20.00 MiB  model.py:10 build (optimizer state, 1 block)") != text.npos);
  const std::string csv = comparison_report(runs, 0, ReportFormat::csv);
  CHECK(csv.find(",parameters,") != csv.npos);
  CHECK(csv.find("parameter_shard") == csv.npos);
}

}  // namespace shardlens::viewer
