// Reads recordings (.slp), with the file of open blocks beside them, by everything that reads them:
// report, check, diff, gate, the exports, --calibration and the viewer's lanes.

#include <algorithm>
#include <nlohmann/json.hpp>

#include "planner/outside_memory.h"
#include "profiler/commands/commands.h"
#include "profiler/commands/exchange_commands.h"
#include "profiler/commands/gate.h"
#include "profiler/file/reader.h"
#include "profiler/report/recording_report.h"
#include "tests/fuzz/checksums.h"
#include "tests/fuzz/harness.h"
#include "viewer/model/lane_builder.h"
#include "viewer/page/export_page.h"

namespace shardlens::fuzz {

namespace {

/// The second part is the file of open blocks without the zeros that fill its pages: the first
/// bytes of each page.
std::string spread_over_pages(const std::string& bytes) {
  constexpr size_t kPageBytes = 4096, kFirstBytes = 512, kMostPages = 64;
  std::string file;
  for (size_t at = 0; at < bytes.size() && at < kFirstBytes * kMostPages; at += kFirstBytes) {
    file += bytes.substr(at, kFirstBytes);
    file.resize((file.size() + kPageBytes - 1) / kPageBytes * kPageBytes);
  }
  return file;
}

profiler::CommandOutcome profile(const std::vector<std::string>& arguments) {
  return profiler::profile_command(
      arguments, {.analyse = profiler::report_of, .check = profiler::check_profile});
}

void expect_json(const std::string& text) {
  expect(nlohmann::json::accept(text), "a report writes invalid JSON");
}

void report(const std::string& path) {
  answers([&] { profile({"check", path}); });
  answers([&] { profile({"report", path}); });
  answers([&] { expect_json(profile({"report", path, "--json"}).out); });
  answers([&] { profile({"diff", path, path}); });
  answers([&] { expect_json(profile({"diff", path, path, "--json"}).out); });
  answers([&] {
    const auto gate =
        profiler::gate_command({path, path, "--fail-above", "0%"}, profiler::report_of);
    expect(gate.exit_code != 1, "a recording has grown against itself");
  });
}

void show_alive(const std::string& path) {
  for (const char* by : {"stack", "module", "category"}) {
    answers([&] { profile({"alive", path, "--by", by, "--from", "bottom"}); });
    answers([&] { expect_json(profile({"alive", path, "--by", by, "--json"}).out); });
    answers([&] { profile({"alive", path, "--by", by, "--at", "end", "--folded"}); });
  }
}

void export_all(const std::string& path) {
  for (const char* format : {"memory-viz", "memory-viz-json", "perfetto", "csv", "html"}) {
    answers([&] {
      profiler::export_command({path, "--format", format, "--out", path + ".out"},
                               {.write_page = viewer::export_page});
    });
  }
}

void calibrate(const std::string& path) {
  answers([&] {
    const planner::Calibration calibration = planner::read_calibration(path);
    expect(calibration.modules_bytes >= 0, "a calibration takes memory away");
  });
}

void view(const std::string& path) {
  answers([&] {
    const viewer::Lane lane = viewer::read_lane(path);
    lane.alive_after(lane.peak().max_change);
    lane.extent_between(0, static_cast<double>(lane.info().end_ns));
    lane.reserved_between(0, static_cast<double>(lane.info().end_ns));
  });
}

/// A few bytes may stand for a million events or strings. Writing all of them is slow, which does
/// not count as a finding.
bool is_bounded(const std::string& path) {
  constexpr int64_t kMostEvents = 20'000;
  constexpr size_t kMostStrings = 20'000;
  bool is_small = true;
  answers([&] {
    const profiler::Reader reader(path);
    is_small = reader.stored_events() <= kMostEvents && reader.strings().size() <= kMostStrings;
  });
  return is_small;
}

void read_everywhere(const std::vector<Part>& parts) {
  const std::string path = write_parts(parts, empty_folder());
  report(path);
  if (!is_bounded(path)) return;
  show_alive(path);
  export_all(path);
  calibrate(path);
  view(path);
}

}  // namespace

void recording(std::string_view input) {
  std::vector<Part> parts = parts_of(input, "rank0.slp");
  parts.resize(std::min<size_t>(parts.size(), 2));
  parts.front().name = "rank0.slp";
  if (parts.size() == 2) parts[1] = {"rank0.slp.open", spread_over_pages(parts[1].bytes)};
  read_everywhere(parts);
  const std::string damaged = parts.front().bytes;
  repair_recording(parts.front().bytes);
  if (parts.size() == 2) repair_open_blocks(parts[1].bytes);
  if (parts.size() == 2 || parts.front().bytes != damaged) read_everywhere(parts);
}

}  // namespace shardlens::fuzz
