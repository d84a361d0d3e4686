// The view is zoomed and chosen on the minimap, and the moment goes from one allocation or free to
// the next, beside a list of those around it.

#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "profiler/exchange/write_recording.h"
#include "tests/support/recordings/failing_recording.h"
#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/stacked_recording.h"
#include "tests/support/recordings/view_recording.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/viewer/acts.h"
#include "viewer/paint/painter.h"
#include "viewer/scene/presenter.h"
#include "viewer/state/zoom.h"

namespace shardlens::viewer {
namespace {

constexpr Canvas kWide{2200, 900, 0, 1};

struct OneRun {
  OneRun() {
    state.files = {folder.file("run.slp")};
    tests::write_profile(state.files[0], tests::view_recording({.steps = 1}));
  }
  tests::TemporaryFolder folder;
  ViewState state;
};

const Picture& pictured(Presenter& presenter) {
  return presenter.picture(kWide, plain_fonts(kWide.scale));
}

const Lane& lane_of_run(const Presenter& presenter) { return presenter.runs()[0].at_peak().lane; }

/// Returns the change that the list of events marks, which is the middle one.
std::vector<size_t> listed(Presenter& presenter) {
  std::vector<size_t> changes;
  for (const Area& area : areas_of(pictured(presenter), Area::Kind::event_row)) {
    changes.push_back(area.index);
  }
  return changes;
}

}  // namespace

TEST_CASE("every allocation and free can be visited, in any alignment") {
  const OneRun run;
  for (const char* const alignment : {"align.event", "align.time", "align.step"}) {
    CAPTURE(alignment);
    Presenter presenter(run.state, "");
    act(presenter, alignment);
    const Lane& lane = lane_of_run(presenter);
    std::vector<double> forward = {-1e9};
    for (int64_t i = lane.peak().max_change; i < lane.changes() + 5; ++i) {
      act(presenter, "event.next");
      if (presenter.state().cursor == forward.back()) break;  // the last one
      CHECK(*presenter.state().cursor > forward.back());
      forward.push_back(*presenter.state().cursor);
    }
    std::vector<double> back = {forward.back()};
    while (back.size() + 1 < forward.size()) {
      act(presenter, "event.previous");
      back.push_back(*presenter.state().cursor);
    }
    std::ranges::reverse(back);
    CHECK(std::ranges::equal(back, std::vector<double>(forward.begin() + 1, forward.end())));
    if (alignment == std::string("align.event")) {
      CHECK(std::ssize(forward) - 1 == lane.changes() - 1 - lane.peak().max_change);
    }
  }
}

TEST_CASE("the list has the events around the moment, and a press goes to one") {
  const OneRun run;
  Presenter presenter(run.state, "");
  act(presenter, {"align.event", "panel.events"});
  const Lane& lane = lane_of_run(presenter);
  const auto peak = static_cast<size_t>(lane.peak().max_change);
  const auto changes = listed(presenter);
  REQUIRE(changes.size() > 20);
  CHECK(std::ranges::is_sorted(changes));
  CHECK(changes.front() < peak);
  CHECK(changes.back() > peak);
  CHECK(says(pictured(presenter), "Around the peak"));
  const Area row = areas_of(pictured(presenter), Area::Kind::event_row)[3];
  presenter.press(row.box.x + 2, row.box.y + 2);
  presenter.release();
  REQUIRE(presenter.state().pick);
  CHECK(presenter.state().pick->block == block_of(lane.arrays().words[row.index]));
  CHECK(says(pictured(presenter), "Around the cursor"));
  const Area now = areas_of(pictured(presenter), Area::Kind::event_row).front();
  const double before = *presenter.state().cursor;
  presenter.wheel(now.box.x + 2, now.box.y + 2, -1);
  CHECK(*presenter.state().cursor > before);
}

TEST_CASE("a request that failed is in the plot, in the list, and one command away") {
  ViewState state;
  state.files = {SHARDLENS_SOURCE_DIR "/tests/fixtures/memory_viz/whole.pickle"};
  Presenter presenter(state, "");
  const auto& failures = lane_of_run(presenter).arrays().failures;
  REQUIRE(failures.size() == 1);
  const std::string asked = bytes_text(failures[0].asked_bytes);
  CHECK(says(pictured(presenter), "out of memory: " + asked + " asked"));
  act(presenter, "failure.next");
  REQUIRE(presenter.state().cursor);
  act(presenter, "panel.events");
  for (const Area& area : areas_of(pictured(presenter), Area::Kind::failure)) {
    const std::string text = presenter.hover_text(area.box.x + 1, area.box.y + 1);
    CHECK(text.find(bytes_text(failures[0].free_bytes) + " free") != std::string::npos);
  }
}

TEST_CASE("a segment says how many of its bytes are used at the shown moment") {
  ViewState state;
  state.files = {SHARDLENS_SOURCE_DIR "/tests/fixtures/memory_viz/whole.pickle"};
  Presenter presenter(state, "");
  act(presenter, {"memory.previous", "pick.next"});
  CHECK(says(pictured(presenter), " used, "));
  CHECK(presenter.pick_text().find("segment   ") != std::string::npos);
  act(presenter, {"memory.next", "pick.next"});
  CHECK_FALSE(says(pictured(presenter), " used, "));
}

TEST_CASE("a narrow window has room for its panels, and parts do not cover each other") {
  constexpr Canvas kNarrow{1000, 600, 0, 1};
  const OneRun run;
  Presenter presenter(run.state, "");
  const auto count = [&](Area::Kind kind) {
    return areas_of(presenter.picture(kNarrow, plain_fonts(1)), kind).size();
  };
  CHECK(count(Area::Kind::alive_row) == 0);
  act(presenter, "panel.events");
  CHECK(count(Area::Kind::event_row) > 10);
  act(presenter, {"panel.events", "whatif"});
  CHECK(count(Area::Kind::control) > 10);
  act(presenter, "pick.next");
  CHECK(count(Area::Kind::control) > 10);
}

TEST_CASE("a drag over the minimap shows that part, and later drags move it") {
  const OneRun run;
  Presenter presenter(run.state, "");
  const Box map = areas_of(pictured(presenter), Area::Kind::minimap).front().box;
  const float y = map.y + map.h / 2;
  const auto drag = [&](float from, float to) {
    presenter.press(map.x + from * map.w, y);
    for (int i = 1; i <= 8; ++i) {
      presenter.drag(map.x + (from + (to - from) * static_cast<float>(i) / 8) * map.w);
    }
    presenter.release();
    pictured(presenter);
  };
  presenter.press(map.x + map.w / 2, y);
  presenter.release();
  CHECK_FALSE(presenter.state().view.has_value());  // a press without a drag changes nothing
  drag(0.75F, 0.25F);
  REQUIRE(presenter.state().view.has_value());
  const Range view = *presenter.state().view;
  const Range extent = presenter.facts().extent;
  CHECK(std::abs(view.begin - (extent.begin + extent.length() / 4)) < extent.length() / 100);
  CHECK(std::abs(view.length() - extent.length() / 2) < extent.length() / 100);
  drag(0.5F, 0.6F);
  CHECK(std::abs(presenter.state().view->length() - view.length()) < extent.length() * 1e-6);
  CHECK(presenter.state().view->begin > view.begin);
  act(presenter, {"undo"});
  CHECK(presenter.state().view == std::nullopt);
}

TEST_CASE("a recording without categories opens with its blocks") {
  tests::TemporaryFolder folder;
  ViewState state;
  state.files = {folder.file("plain.slp")};
  profiler::Profile plain = tests::view_recording({.steps = 1});
  for (profiler::Event& event : plain.events) event.category = profiler::Category::other;
  tests::write_profile(state.files[0], plain);
  Presenter presenter(state, "");
  presenter.choose_view();
  CHECK(presenter.state().detail == Detail::blocks);
  const OneRun run;
  Presenter other(run.state, "");
  other.choose_view();
  CHECK(other.state().detail == Detail::bands);
}

TEST_CASE("the y axes stay within the whole range, at whatever height they are zoomed") {
  ViewState state;
  zoom_heights(state, 0.5, 0.5);
  CHECK(state.heights.begin == Catch::Approx(0.25));
  CHECK(state.heights.end == Catch::Approx(0.75));
  for (int i = 0; i < 100; ++i) zoom_heights(state, 0.9, 0.5);
  pan_heights(state, 1e9);
  CHECK(state.heights.end == Catch::Approx(1));
  for (int i = 0; i < 100; ++i) zoom_heights(state, 0, 2);
  CHECK(state.heights == Range{0, 1});
}

TEST_CASE("zooming keeps the point under the pointer and stays inside") {
  Facts facts;
  facts.extent = {-1, 4};
  ViewState state;
  zoom_at(state, facts, 0, 0.5);
  REQUIRE(state.view.has_value());
  const double part = (0 - state.view->begin) / state.view->length();
  CHECK(part == Catch::Approx(0.2));
  for (int i = 0; i < 200; ++i) zoom_at(state, facts, 0, 0.5);
  CHECK(state.view->length() > 0);
  for (int i = 0; i < 200; ++i) zoom_at(state, facts, 3.9, 1.5);
  CHECK_FALSE(state.view.has_value());
  state.view = Range{3, 4};
  pan_by(state, facts, 100);
  CHECK(state.view->end == Catch::Approx(4));
}

namespace {

struct FailedRun {
  FailedRun() {
    state.files = {folder.file("run.slp")};
    tests::write_profile(state.files[0], tests::failing_recording());
  }
  tests::TemporaryFolder folder;
  ViewState state;
};

Area only_area(Presenter& presenter, Area::Kind kind) {
  const auto areas = areas_of(pictured(presenter), kind);
  REQUIRE_FALSE(areas.empty());
  return areas.front();
}

}  // namespace

TEST_CASE("at a moment there is one reserved, of tensors and of segments") {
  const FailedRun run;
  Presenter presenter(run.state, "");
  act(presenter, "failure.next");
  CHECK(says(pictured(presenter), bytes_text(tests::kFailingReserved) + " reserved"));
  act(presenter, "memory.previous");
  CHECK(says(pictured(presenter), bytes_text(tests::kFailingReserved)));
}

TEST_CASE("a failed request says who asked, and a press on it says why") {
  const FailedRun run;
  Presenter presenter(run.state, "");
  CHECK(says(pictured(presenter), "192.00 MiB asked by " + tests::kFailingLine));
  CHECK(says(pictured(presenter), "out of memory"));
  CHECK(says(pictured(presenter), "grows"));
  const Area line = only_area(presenter, Area::Kind::failure);
  const float x = line.box.x + line.box.w / 2;
  CHECK(presenter.hover_text(x, line.box.y + 5).find(tests::kFailingLine) != std::string::npos);
  presenter.press(x, line.box.y + 5);
  presenter.release();
  REQUIRE(presenter.state().cursor);
  CHECK(presenter.state().panels.why);
  CHECK(says(pictured(presenter), "headroom none"));
  CHECK(says(pictured(presenter), "Reserved memory"));
  act(presenter, {"panel.why", "panel.events"});
  CHECK(says(pictured(presenter), "asked by " + tests::kFailingLine));
}

TEST_CASE("panels and the axis of time have one clock") {
  const FailedRun run;
  Presenter presenter(run.state, "");
  act(presenter, {"align.time", "failure.next"});
  const Lane& lane = lane_of_run(presenter);
  const double x = *presenter.state().cursor;
  const double seconds = std::round(
      static_cast<double>(lane.time_of(lane.changes() - 1) - lane.first_step()->begin_ns) / 1e6);
  CHECK(x == Catch::Approx(seconds / 1e3).margin(2e-3));
  CHECK(says(pictured(presenter), fmt::format("{:.3f} s from step 0", seconds / 1e3)));
}

TEST_CASE("a dragged interval has its length, and what it allocated and freed") {
  const FailedRun run;
  Presenter presenter(run.state, "");
  const Area plot = only_area(presenter, Area::Kind::lane);
  presenter.press(plot.box.x + 1, plot.box.y + 40);
  presenter.drag(plot.box.right() - 2);
  presenter.release();
  const Lane& lane = lane_of_run(presenter);
  int64_t allocated = 0;
  for (const Block& block : lane.arrays().blocks) allocated += block.given_bytes;
  CHECK(says(pictured(presenter), " ms: " + bytes_text(allocated) + " allocated, "));
}

TEST_CASE("zoom and cursor stay at their moments when the alignment changes") {
  const OneRun run;
  Presenter presenter(run.state, "");
  act(presenter, {"align.time", "peak", "zoom.in", "zoom.in", "zoom.in"});
  const ViewState before = presenter.state();
  for (const char* const alignment : {"align.event", "align.step", "align.phase", "align.time"}) {
    act(presenter, alignment);
    CAPTURE(alignment);
    REQUIRE(presenter.state().cursor);
    REQUIRE(presenter.state().view);
    CHECK(presenter.state().view->contains(*presenter.state().cursor));
  }
  const double width = before.view->length();
  CHECK(*presenter.state().cursor == Catch::Approx(*before.cursor).margin(width / 20));
  CHECK(presenter.state().view->begin == Catch::Approx(before.view->begin).margin(width / 20));
  act(presenter, "undo");
  CHECK(presenter.state().alignment == Alignment::phase);
}

TEST_CASE("undo takes back the turns of the wheel, and keeps what was done before them") {
  const OneRun run;
  Presenter presenter(run.state, "");
  act(presenter, "peak");
  const ViewState before = presenter.state();
  const Area plot = only_area(presenter, Area::Kind::lane);
  for (int i = 0; i < 4; ++i) presenter.wheel(plot.box.x + plot.box.w / 2, plot.box.y + 9, 1);
  REQUIRE(presenter.state().view);
  act(presenter, "undo");
  CHECK(presenter.state() == before);
}

TEST_CASE("an action of the ribbon says its name and length, and a press selects it") {
  const OneRun run;
  Presenter presenter(run.state, "");
  const Area ribbon = only_area(presenter, Area::Kind::ribbon);
  const float y = ribbon.box.y + ribbon.box.h / 4;
  float x = ribbon.box.x + ribbon.box.w / 2;
  const auto is_forward = [&] { return presenter.hover_text(x, y).starts_with("FORWARD"); };
  while (!is_forward() && x < ribbon.box.right()) x += 1;
  const std::string text = presenter.hover_text(x, y);
  CAPTURE(text);
  CHECK(text.starts_with("FORWARD"));
  CHECK(text.find(" ms\nbegins ") != std::string::npos);
  CHECK(text.find(" at its end\n") != std::string::npos);
  presenter.press(x, y);
  presenter.release();
  REQUIRE(presenter.state().selection);
  CHECK(presenter.state().selection->length() > 0);
}

namespace {

/// A recorded Python program: a step with a batch, forward, backward with a collective in it, and
/// an optimizer's step, each of which allocates 1 MiB and keeps it.
profiler::Profile program_with_parts() {
  using profiler::EventKind;
  using profiler::ProgramPart;
  profiler::Profile profile;
  profile.header.device = "null:h100";
  profile.strings = {"", "train.py:7 forward", "Mlp.forward", "train.py"};
  profile.stacks.frames.push_back({.caller = 0, .file = 3, .function = 2, .line = 7});
  profile.stacks.of_label = {0, 1};
  int64_t time_ns = 0;
  const auto mark = [&](EventKind kind, int64_t value, int32_t action = -1) {
    time_ns += 1'000'000;
    profile.events.push_back({.time_ns = time_ns, .value = value, .action = action, .kind = kind});
  };
  const auto allocate = [&] {
    time_ns += 1'000'000;
    profile.events.push_back({.time_ns = time_ns,
                              .address = static_cast<uint64_t>(time_ns),
                              .value = 1 << 20,
                              .label = 1,
                              .kind = EventKind::alloc});
  };
  const auto in_part = [&](ProgramPart part, bool communicates) {
    mark(EventKind::action_begin, 0, static_cast<int32_t>(part));
    allocate();
    constexpr auto kAsks = static_cast<int32_t>(ProgramPart::communication);
    if (communicates) mark(EventKind::action_begin, 0, kAsks);
    if (communicates) mark(EventKind::action_end, 0, kAsks);
    mark(EventKind::action_end, 0, static_cast<int32_t>(part));
  };
  mark(EventKind::phase, static_cast<int64_t>(profiler::Phase::training));
  mark(EventKind::step, 0);
  in_part(ProgramPart::input, false);
  in_part(ProgramPart::forward, false);
  in_part(ProgramPart::backward, true);
  in_part(ProgramPart::optimizer, false);
  return profile;
}

struct Program {
  explicit Program(const profiler::Profile& profile) {
    state.files = {folder.file("program.slp")};
    profiler::write_recording(profile, state.files[0]);
  }
  tests::TemporaryFolder folder;
  ViewState state;
};

/// Returns the first lines of all tooltips of a row of the ribbon, from the left.
std::vector<std::string> parts_in_row(Presenter& presenter, double part_of_height) {
  const Area ribbon = only_area(presenter, Area::Kind::ribbon);
  const float y = ribbon.box.y + static_cast<float>(part_of_height) * ribbon.box.h;
  std::vector<std::string> parts;
  for (float x = ribbon.box.x; x < ribbon.box.right(); x += 1) {
    const std::string text = presenter.hover_text(x, y);
    const std::string first = text.substr(0, text.find_first_of(":\n"));
    if (first == "nothing ran here" || (!parts.empty() && parts.back() == first)) continue;
    parts.push_back(first);
  }
  return parts;
}

}  // namespace

TEST_CASE("the ribbon of a Python program has its parts, a legend and the peak's part") {
  const Program program(program_with_parts());
  Presenter presenter(program.state, "");
  act(presenter, "align.time");
  CHECK(parts_in_row(presenter, 0.25) ==
        std::vector<std::string>{"input", "forward", "backward", "optimizer"});
  CHECK(parts_in_row(presenter, 0.75) == std::vector<std::string>{"communication"});
  const Picture& picture = pictured(presenter);
  for (const char* text : {"phase", "comm.", "forward", "backward", "optimizer"}) {
    CAPTURE(text);
    CHECK(says(picture, text));
  }
  // The last of four allocations is the peak.
  CHECK(says(picture, "step 0, optimizer of Mlp, 0.013 s from step 0"));
  const Area ribbon = only_area(presenter, Area::Kind::ribbon);
  for (float x = ribbon.box.x; x < ribbon.box.right(); x += 1) {
    const std::string text = presenter.hover_text(x, ribbon.box.y + ribbon.box.h / 4);
    if (!text.starts_with("backward")) continue;
    CHECK(text ==
          "backward\nstep 0, 4.000 ms\nbegins 0.007000 s from step 0\n"
          "at most 3.00 MiB, 3.00 MiB at its end\nclick to select it");
    presenter.press(x, ribbon.box.y + ribbon.box.h / 4);
    presenter.release();
    break;
  }
  REQUIRE(presenter.state().selection);
  CHECK(says(pictured(presenter), "4.000 ms: 1.00 MiB allocated, 0 B freed, 1.00 MiB more"));
}

TEST_CASE("the ribbon and the peak of a Python program name the module that allocates") {
  profiler::Profile profile = program_with_parts();
  profile.strings.insert(profile.strings.end(), {"layers.11.mlp", "layers.12"});
  const auto module_before = [&](int64_t time_ns, uint32_t label) {
    profile.events.push_back(
        {.time_ns = time_ns, .label = label, .kind = profiler::EventKind::module});
  };
  module_before(1, 4);           // before the input's allocation
  module_before(9'999'999, 5);   // before backward's
  module_before(10'000'000, 0);  // after it
  std::ranges::stable_sort(profile.events, {}, &profiler::Event::time_ns);
  const Lane lane = lane_of(profile);
  REQUIRE(lane.changes() == 4);
  CHECK(lane.module_of(0) == "layers.11.mlp");
  CHECK(lane.module_of(1) == "layers.11.mlp");
  CHECK(lane.module_of(2) == "layers.12");
  CHECK(lane.module_of(3).empty());
  const Program program(profile);
  Presenter presenter(program.state, "");
  act(presenter, "align.time");
  const Area ribbon = only_area(presenter, Area::Kind::ribbon);
  std::set<std::string> lines;
  for (float x = ribbon.box.x; x < ribbon.box.right(); x += 1) {
    const std::string text = presenter.hover_text(x, ribbon.box.y + ribbon.box.h / 4);
    const size_t line = text.find("the last allocation here is of ");
    if (line == std::string::npos) continue;
    lines.insert(text.substr(0, text.find('\n')) + ": " +
                 text.substr(line, text.find('\n', line) - line));
  }
  CHECK(lines == std::set<std::string>{"input: the last allocation here is of layers.11.mlp",
                                       "forward: the last allocation here is of layers.11.mlp",
                                       "backward: the last allocation here is of layers.12"});
}

TEST_CASE("a program that does not communicate has one row, and no row is empty") {
  profiler::Profile profile = program_with_parts();
  std::erase_if(profile.events, [](const profiler::Event& event) {
    return event.action == static_cast<int32_t>(profiler::ProgramPart::communication);
  });
  const Program program(profile);
  Presenter presenter(program.state, "");
  act(presenter, "align.time");
  CHECK(parts_in_row(presenter, 0.75) == parts_in_row(presenter, 0.25));
  CHECK_FALSE(says(pictured(presenter), "comm."));
}

TEST_CASE("parts of a program may end in any order") {
  profiler::Profile profile = program_with_parts();
  // A file is saved from the forward on until after the backward has begun.
  const auto mark = [](int64_t time_ns, profiler::EventKind kind) {
    return profiler::Event{.time_ns = time_ns,
                           .action = static_cast<int32_t>(profiler::ProgramPart::checkpoint),
                           .kind = kind};
  };
  profile.events.push_back(mark(6'500'000, profiler::EventKind::action_begin));
  profile.events.push_back(mark(9'500'000, profiler::EventKind::action_end));
  std::ranges::stable_sort(profile.events, {}, &profiler::Event::time_ns);
  const Lane lane = lane_of(profile);
  std::vector<std::pair<int64_t, int64_t>> spans;
  for (const Span& span : lane.arrays().spans) spans.emplace_back(span.begin_ns, span.end_ns);
  CHECK(spans == std::vector<std::pair<int64_t, int64_t>>{{3'000'000, 5'000'000},
                                                          {6'000'000, 8'000'000},
                                                          {6'500'000, 9'500'000},
                                                          {9'000'000, 13'000'000},
                                                          {11'000'000, 12'000'000},
                                                          {14'000'000, 16'000'000}});
}

TEST_CASE("a program without actions has no ribbon") {
  const FailedRun run;
  Presenter presenter(run.state, "");
  CHECK(areas_of(pictured(presenter), Area::Kind::ribbon).empty());
  CHECK_FALSE(says(pictured(presenter), "comm."));
}

TEST_CASE("a long run beside short ones does not leave these blank") {
  const tests::TemporaryFolder folder;
  ViewState state;
  for (const auto& [name, steps] : {std::pair{"long", 300}, std::pair{"short", 2}}) {
    state.files.push_back(folder.file(name + std::string(".slp")));
    tests::write_profile(state.files.back(), tests::leaking_recording(steps, 64, 128));
  }
  Presenter presenter(state, "");
  presenter.choose_view();
  CHECK(presenter.state().alignment == Alignment::normalised);
}

TEST_CASE("a place that is cut keeps its line") {
  Picture picture;
  const Fonts fonts = plain_fonts(1);
  const Painter paint(picture, fonts, colors_of(Theme::light), 1);
  const std::string place = "modeling_llama.py:314 apply_rotary_pos_emb";
  for (float width = 60; width < 400; width += 7) {
    const std::string cut = paint.fitted_place(Style::small, place, width);
    CAPTURE(width, cut);
    CHECK(paint.width(Style::small, cut) <= width);
    CHECK(cut.find(":314") != std::string::npos);
  }
}

TEST_CASE("an empty folder says why nothing is shown") {
  const tests::TemporaryFolder folder;
  std::filesystem::create_directories(folder.file("empty"));
  ViewState state;
  state.files = {folder.file("empty")};
  Presenter presenter(state, "");
  CHECK(says(pictured(presenter), "no recording profiles/rank0.slp"));
  CHECK(says(pictured(presenter), "No run is open"));
}

TEST_CASE("a kernel of a trace has a tooltip, and a press selects its time") {
  const tests::TemporaryFolder folder;
  profiler::Profile profile = tests::view_recording({.steps = 1});
  profile.header.start_realtime_ns = int64_t{1} << 60;
  tests::write_profile(folder.file("run.slp"), profile);
  tests::write_file(
      folder.file("trace.json"),
      fmt::format(R"({{"baseTimeNanoseconds":{},"traceEvents":[{{"ph":"X","cat":"kernel",)"
                  R"("name":"gemm","ts":0,"dur":4000,"args":{{"device":0,"stream":7}}}}]}})",
                  profile.header.start_realtime_ns));
  ViewState state;
  state.files = {folder.file("run.slp"), folder.file("trace.json")};
  Presenter presenter(state, "");
  act(presenter, "align.time");
  const auto rows = areas_of(pictured(presenter), Area::Kind::gpu_work);
  REQUIRE(rows.size() == 1);
  CHECK(says(pictured(presenter), "stream 7"));
  const float x = rows[0].box.x + 2;
  const float y = rows[0].box.y + rows[0].box.h / 2;
  CHECK(presenter.hover_text(x, y).starts_with("gemm\nkernel, 4.000 ms"));
  CHECK(presenter.hover_text(rows[0].box.right() - 2, y) == "the stream is idle here");
  presenter.press(x, y);
  presenter.release();
  REQUIRE(presenter.state().selection);
  CHECK(presenter.state().selection->length() == Catch::Approx(0.004));
}

}  // namespace shardlens::viewer
