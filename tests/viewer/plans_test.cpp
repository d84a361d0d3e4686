// Tests plans in the viewer: drawn over what was measured, made from a file, or changed in the
// what-if panel.

#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cctype>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <string>

#include "base/units.h"
#include "planner/config/options.h"
#include "planner/plan_json.h"
#include "planner/plan_text.h"
#include "planner/planner.h"
#include "tests/support/recordings/random_events.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/viewer/acts.h"
#include "viewer/model/joined_warp.h"
#include "viewer/model/planned_run.h"
#include "viewer/scene/panels/comparison_report.h"
#include "viewer/scene/panels/treemap.h"
#include "viewer/scene/presenter.h"
#include "viewer/state/session.h"

namespace shardlens::viewer {
namespace {

namespace fs = std::filesystem;

planner::Config config_of(const std::string& reshard) {
  planner::Config config;
  config.data = "synthetic";
  config.device = device_named("null:h200");
  config.world = config.workers = 2;
  config.reshard_after_forward = planner::reshard_named(reshard);
  return config;
}

/// A plan, and a recording of the same run that took `extra_bytes` more for one activation and
/// twice as long. If it `goes_on`, it has another step, a copy of the last one, which ends with
/// what the end of the run frees: two scalars.
constexpr int64_t kTwoScalarsBytes = 1024;
struct Pair {
  explicit Pair(int64_t extra_bytes, bool goes_on = false) {
    const planner::PlannedTimeline planned = planner::make_timeline(config_of("true"), {});
    profiler::Profile measured = planned.timeline;
    measured.header.notice = "null device: memory is real, values are not";
    if (goes_on) repeat_last_step(measured);
    for (auto& event : measured.events) event.time_ns *= 2;
    grow(measured, extra_bytes);
    tests::write_profile(folder.file("plan.slp"), planned.timeline);
    tests::write_profile(folder.file("run.slp"), measured);
    state.files = {folder.file("run.slp"), folder.file("plan.slp")};
    plan = planned.plan;
  }

  static void repeat_last_step(profiler::Profile& profile) {
    auto& events = profile.events;
    size_t begin = 0;
    for (size_t i = 0; i < events.size(); ++i) {
      if (events[i].kind == profiler::EventKind::step) begin = i;
    }
    size_t end = begin;
    while (end < events.size() && events[end].kind != profiler::EventKind::phase) ++end;
    std::vector<profiler::Event> step(events.begin() + static_cast<std::ptrdiff_t>(begin),
                                      events.begin() + static_cast<std::ptrdiff_t>(end));
    const int64_t end_ns = end < events.size() ? events[end].time_ns : events.back().time_ns + 1;
    const int64_t length_ns = end_ns - step.front().time_ns;
    for (size_t i = end; i < events.size(); ++i) events[i].time_ns += length_ns;
    for (auto& event : step) event.time_ns += length_ns;
    step.front().value += 1;
    events.insert(events.begin() + static_cast<std::ptrdiff_t>(end), step.begin(), step.end());
  }
  /// The largest block that is freed within its step, in step 1.
  static void grow(profiler::Profile& profile, int64_t bytes) {
    if (bytes == 0) return;
    int64_t step = -1;
    profiler::Event* largest = nullptr;
    for (auto& event : profile.events) {
      if (event.kind == profiler::EventKind::step) step = event.value;
      const bool is_one = step == 1 && event.kind == profiler::EventKind::alloc &&
                          event.category == profiler::Category::activation;
      if (is_one && (largest == nullptr || event.value > largest->value)) largest = &event;
    }
    REQUIRE(largest != nullptr);
    largest->value += bytes;
  }

  tests::TemporaryFolder folder;
  ViewState state;
  planner::Plan plan;
};

constexpr Canvas kCanvas{1500, 900, 0, 1};

const Picture& draw(Presenter& presenter) {
  return presenter.picture(kCanvas, plain_fonts(kCanvas.scale));
}

/// A column's highest bytes are in this range: a change on the boundary of two columns may be in
/// either.
Range shown_at(const std::vector<std::optional<Extent>>& columns, size_t i) {
  Range shown{static_cast<double>(columns[i]->max_bytes),
              static_cast<double>(columns[i]->max_bytes)};
  for (const size_t beside : {i - 1, i + 1}) {
    if (beside >= columns.size() || !columns[beside]) continue;
    shown.begin = std::min(shown.begin, static_cast<double>(columns[beside]->max_bytes));
    shown.end = std::max(shown.end, static_cast<double>(columns[beside]->max_bytes));
  }
  return shown;
}

/// The highest bytes of the whole run; a recording with one more step has no more at its end.
void check_columns(const Run& run, Alignment alignment, int count, int64_t most_bytes) {
  const Lane& lane = run.ranks[0].lane;
  const NamedLane one{&lane, &run.ranks[0].names};
  const Warp warp = warp_of(alignment, one, one);
  const Range all = warp.extent();
  const auto measured = columns_of(warp, lane, all, count);
  const auto planned =
      joined_columns(joined_warp(warp, lane, run.plan->lane), run.plan->lane, all, count);
  int known = 0, on_edges = 0;
  int64_t worst_bytes = 0;
  for (size_t i = 0; i < measured.size(); ++i) {
    if (!measured[i] || !planned[i]) continue;
    ++known;
    const int64_t bytes = std::abs(planned[i]->max_bytes - measured[i]->max_bytes);
    const Range shown = shown_at(measured, i);
    const auto plan_bytes = static_cast<double>(planned[i]->max_bytes);
    const bool is_on_edge =
        bytes > most_bytes && shown.begin <= plan_bytes && plan_bytes <= shown.end;
    if (is_on_edge) ++on_edges;
    if (!is_on_edge) worst_bytes = std::max(worst_bytes, bytes);
  }
  CHECK(worst_bytes <= most_bytes);
  CHECK(on_edges <= 1);
  CHECK(known > count * 3 / 4);
}

}  // namespace

TEST_CASE("a plan matches the run of its schedule, to the byte in every column and alignment") {
  for (const bool goes_on : {false, true}) {
    Pair pair(0, goes_on);
    OpenedRuns opened = open_runs(pair.state.files);
    CHECK(opened.runs[1].is_predicted());
    CHECK_FALSE(opened.runs[0].is_predicted());
    join_plans(opened.runs);
    REQUIRE(opened.runs.size() == 1);
    const Run& run = opened.runs[0];
    REQUIRE(run.plan.has_value());
    CHECK(run.plan->lane.peak().max_bytes == pair.plan.peak.allocated_bytes);
    for (const Alignment alignment : {Alignment::time, Alignment::step, Alignment::event}) {
      for (const int count : {37, 400}) {
        CAPTURE(goes_on, static_cast<int>(alignment), count);
        check_columns(run, alignment, count, goes_on ? kTwoScalarsBytes : 0);
      }
    }
  }
}

TEST_CASE("a plan of other work stays separate, and joined ones can be separated again") {
  Pair pair(0);
  const planner::PlannedTimeline other = planner::make_timeline(config_of("false"), {});
  planner::Config larger = config_of("true");
  larger.batch = 128;
  const planner::PlannedTimeline large = planner::make_timeline(larger, {});
  tests::write_profile(pair.folder.file("other.slp"), other.timeline);
  tests::write_profile(pair.folder.file("large.slp"), large.timeline);
  pair.state.files.push_back(pair.folder.file("other.slp"));
  pair.state.files.push_back(pair.folder.file("large.slp"));
  Presenter presenter(pair.state, "");
  const auto names = [&] {
    std::string all;
    for (const Run& run : presenter.runs()) all += run.name + " ";
    return all;
  };
  CHECK(names() == "run other large ");
  act(presenter, "panel.plans");
  draw(presenter);
  CHECK(names() == "run plan other large ");
  act(presenter, "panel.plans");
  draw(presenter);
  CHECK(names() == "run other large ");
}

TEST_CASE("a run keeps its name beside a plan that was stored under the same one") {
  Pair pair(0);
  fs::create_directories(pair.folder.file("plans"));
  fs::rename(pair.folder.file("plan.slp"), pair.folder.file("plans/run.slp"));
  pair.state.files = {pair.folder.file("run.slp"), pair.folder.file("plans/run.slp")};
  OpenedRuns opened = open_runs(pair.state.files);
  REQUIRE(opened.runs.size() == 2);
  CHECK(opened.runs[0].name == "run");
  CHECK(opened.runs[1].name == "plans/run");
  join_plans(opened.runs);
  REQUIRE(opened.runs.size() == 1);
  CHECK(opened.runs[0].name == "run");
}

TEST_CASE("the difference between run and plan is given in bytes, and drawn") {
  Pair exact(0);
  Presenter same(exact.state, "");
  CHECK(says(draw(same), "as planned, to the byte"));
  constexpr int64_t kExtra = 3 << 20;
  Pair grown(kExtra);
  Presenter more(grown.state, "");
  const Picture& picture = draw(more);
  CHECK(says(picture, "at most 3.00 MiB more"));
  CHECK_FALSE(says(picture, "as planned"));
  // Drawn as bars in the colour for more.
  const uint32_t bar = packed(colors_of(Theme::light).more);
  const bool has_bar = std::ranges::any_of(picture.items, [&](const Item& item) {
    const auto* const placed = std::get_if<PlacedImage>(&item);
    return placed != nullptr && std::ranges::count(placed->image->pixels, bar) > 0;
  });
  CHECK(has_bar);
}

TEST_CASE("the report has a run's plan beside the run, and a plan's verdict") {
  Pair pair(0);
  const Presenter presenter(pair.state, "");
  const std::string size = bytes_text(pair.plan.peak.allocated_bytes);
  const auto report = [&](ReportFormat format) {
    return comparison_report(presenter.runs(), 0, format);
  };
  const std::string words = "plan " + size + ": measured the same";
  CHECK(report(ReportFormat::text).find(words) != std::string::npos);
  const auto json = nlohmann::json::parse(report(ReportFormat::json));
  const auto& strategy = json.at("strategies").at(0);
  CHECK(strategy.at("plan_peak_allocated_bytes") == pair.plan.peak.allocated_bytes);
  CHECK(strategy.at("predicted") == false);
  std::vector<Run> planned;
  planned.push_back(planned_run({"a plan", planner::to_json(config_of("true")), ""}));
  CHECK(comparison_report(planned, 0, ReportFormat::text)
            .find("predicted, " + planner::verdict_line(pair.plan)) != std::string::npos);
}

TEST_CASE("a plan's JSON and a run's config.json are simulated when opened") {
  const tests::TemporaryFolder folder;
  const planner::Config config = config_of("true");
  const planner::Plan plan = planner::make_plan(config, {});
  tests::write_file(folder.file("plan.json"), planner::plan_json(plan));
  fs::create_directories(folder.file("five"));
  tests::write_file(folder.file("five/config.json"), planner::to_json(config));
  tests::write_file(folder.file("other.json"), "{\"schema\":\"something\"}");
  tests::write_file(folder.file("wrong.json"), "{\"model\":\"no-such-model\"}");
  tests::write_file(folder.file("cut.json"), "{\"model\":");
  const OpenedRuns opened =
      open_runs({folder.file("plan.json"), folder.file("five/config.json"),
                 folder.file("other.json"), folder.file("wrong.json"), folder.file("cut.json")});
  CHECK(opened.messages.size() == 3);
  REQUIRE(opened.runs.size() == 2);
  CHECK(opened.runs[1].name == "five plan");
  for (const Run& run : opened.runs) {
    CHECK(run.is_predicted());
    CHECK(run.ranks[0].lane.peak().max_bytes == plan.peak.allocated_bytes);
    REQUIRE(run.outlook.has_value());
    CHECK(run.outlook->verdict == planner::verdict_line(plan));
  }
}

TEST_CASE("a run whose data is on another machine is planned with noise, as its name says") {
  planner::Config config = config_of("true");
  const Run noise = planned_run({.name = "r", .config = to_json(config), .gpu = ""});
  CHECK(noise.name == "r");
  config.data = "a-folder-that-is-not-here";
  const Run planned = planned_run({.name = "r", .config = to_json(config), .gpu = ""});
  CHECK(planned.name == "r (synthetic data)");
  CHECK(planned.ranks[0].lane.peak().max_bytes == noise.ranks[0].lane.peak().max_bytes);
}

TEST_CASE("a damaged plan is one message, or a plan") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  const tests::TemporaryFolder folder;
  const std::string path = folder.file("plan.json");
  const std::string whole = planner::plan_json(planner::make_plan(config_of("true"), {}));
  int opened_runs = 0;
  for (int i = 0; i < 200; ++i) {
    std::string damaged = whole;
    // Only letters and punctuation: a number that grew would be simulated.
    const auto at = engine() % damaged.size();
    if (std::isdigit(static_cast<unsigned char>(damaged[at])) != 0) continue;
    damaged[at] = static_cast<char>('A' + engine() % 60);
    if (i % 8 == 0) damaged.resize(at);
    tests::write_file(path, damaged);
    const OpenedRuns opened = open_runs({path});
    CHECK(opened.runs.size() + opened.messages.size() == 1);
    for (const std::string& message : opened.messages) {
      CHECK(message.find('\n') == std::string::npos);
      CHECK(message.starts_with(path + ": "));
    }
    opened_runs += static_cast<int>(opened.runs.size());
  }
  CHECK(opened_runs > 0);
}

TEST_CASE("the what-if panel shows the planner's plan, changes it, and keeps it") {
  Pair pair(0);
  Presenter presenter(pair.state, "");
  draw(presenter);
  act(presenter, "whatif");
  CHECK(says(draw(presenter), "it fits"));
  REQUIRE(presenter.runs().size() == 2);
  CHECK(presenter.runs()[1].ranks[0].lane.peak().max_bytes == pair.plan.peak.allocated_bytes);

  act(presenter, "whatif.batch.more");
  act(presenter, "whatif.offload.previous");
  draw(presenter);
  planner::Config wanted = config_of("true");
  wanted.batch = 128;
  wanted.offload = planner::Offload::all;
  const planner::Plan plan = planner::make_plan(wanted, {});
  CHECK(presenter.runs()[1].ranks[0].lane.peak().max_bytes == plan.peak.allocated_bytes);
  CHECK(presenter.runs()[1].name == "run: batch 128, offload all");
  CHECK(says(draw(presenter), "of 139.81 GiB"));

  act(presenter, "whatif.keep");
  act(presenter, "whatif.reset");
  draw(presenter);
  REQUIRE(presenter.runs().size() == 3);
  CHECK(presenter.runs()[1].name == "run: batch 128, offload all");
  CHECK(presenter.runs()[2].name == "run as planned");

  const Presenter again(parse_session(session_text(presenter.state(), "/x"), "/x"), "");
  REQUIRE(again.runs().size() == 3);
  for (size_t i = 0; i < 3; ++i) {
    CHECK(again.runs()[i].at_peak().lane.peak().max_bytes ==
          presenter.runs()[i].at_peak().lane.peak().max_bytes);
  }
  act(presenter, "whatif");
  act(presenter, "whatif.drop");
  draw(presenter);
  CHECK(presenter.runs().size() == 1);
}

TEST_CASE("the what-if panel says that a plan that is too large does not fit") {
  const std::string config = R"({"model":"vit-l16","batch":4096,"workers":8,"device":"null:h200"})";
  ViewState state;
  state.what_if = WhatIfEdit{.of = "large", .base = config, .config = config, .gpu = ""};
  Presenter presenter(state, "");
  const Picture& picture = draw(presenter);
  CHECK(says(picture, "it does not fit"));
  CHECK_FALSE(says(picture, "fit well"));
}

TEST_CASE("a plan that cannot be made is reported, and the last plan stays") {
  Pair pair(0);
  Presenter presenter(pair.state, "");
  draw(presenter);
  act(presenter, "whatif");
  const auto peak = [&] { return presenter.runs()[1].at_peak().lane.peak().max_bytes; };
  draw(presenter);
  const int64_t before = peak();
  act(presenter, "whatif.strategy.next");  // single, on two ranks
  CHECK(says(draw(presenter), "no plan"));
  CHECK(peak() == before);
  act(presenter, "whatif.strategy.previous");
  CHECK(says(draw(presenter), "it fits"));
}

TEST_CASE("a picture that does not wait marks the last plan stale until the new one exists") {
  Pair pair(0);
  Presenter presenter(pair.state, "");
  draw(presenter);
  act(presenter, "whatif");
  draw(presenter);
  presenter.set_patience(std::chrono::milliseconds(0));
  for (int i = 0; i < 3; ++i) act(presenter, "whatif.batch.more");
  draw(presenter);
  // The worker may have been that quick; else the picture says so.
  CHECK(presenter.is_planning() == says(draw(presenter), "stale"));
  while (presenter.is_planning()) presenter.follow_plan();
  CHECK_FALSE(says(draw(presenter), "stale"));
  planner::Config wanted = config_of("true");
  wanted.batch = 512;
  CHECK(presenter.runs()[1].at_peak().lane.peak().max_bytes ==
        planner::make_plan(wanted, {}).peak.allocated_bytes);
}

TEST_CASE("controls are set with the pointer: a chip by a click, a slider by a drag") {
  Pair pair(0);
  Presenter presenter(pair.state, "");
  draw(presenter);
  act(presenter, "whatif");
  const auto zone = [&](Control control, size_t choice) {
    for (const Area& area : draw(presenter).areas) {
      if (area.kind == Area::Kind::control && area.run == static_cast<size_t>(control) &&
          area.index == choice) {
        return area.box;
      }
    }
    FAIL("no such zone");
    return Box{};
  };
  const Box all = zone(Control::offload, 3);
  presenter.press(all.x + all.w / 2, all.y + all.h / 2);
  presenter.release();
  CHECK(choices_of(*presenter.state().what_if, Control::offload).chosen == 3);
  const Box from = zone(Control::batch, 6);
  const Box to = zone(Control::batch, 9);
  presenter.press(from.x + from.w / 2, from.y + from.h / 2);
  presenter.drag(to.x + to.w / 2);
  presenter.release();
  const Choices batch = choices_of(*presenter.state().what_if, Control::batch);
  CHECK(batch.words[batch.chosen] == "512");
}

TEST_CASE(
    "segments, host and pinned memory are shown as the recording has them, also where there is "
    "none") {
  planner::Config config = config_of("true");
  config.offload = planner::Offload::all;
  const planner::PlannedTimeline planned = planner::make_timeline(config, {});
  const tests::TemporaryFolder folder;
  tests::write_profile(folder.file("offload.slp"), planned.timeline);
  profiler::Profile plain = planner::make_timeline(config_of("true"), {}).timeline;
  std::erase_if(plain.events, [](const auto& e) { return e.space == profiler::Space::pinned; });
  tests::write_profile(folder.file("plain.slp"), plain);
  ViewState state;
  state.files = {folder.file("offload.slp"), folder.file("plain.slp")};
  Presenter presenter(state, folder.file("cache"));
  draw(presenter);
  const auto peak = [&](size_t run) {
    return presenter.runs()[run].at_peak().lane.peak().max_bytes;
  };
  CHECK(peak(0) == planned.plan.peak.allocated_bytes);
  act(presenter, "memory.previous");
  CHECK(says(draw(presenter), "segments reserved by the allocator"));
  CHECK(peak(0) == planned.plan.peak.reserved_bytes);
  act(presenter, {"memory.next", "memory.next"});
  draw(presenter);
  CHECK(peak(0) == planned.plan.host_bytes);
  act(presenter, "memory.next");
  CHECK(says(draw(presenter), "pinned host memory"));
  CHECK(peak(0) == planned.plan.pinned_bytes);
  CHECK(planned.plan.pinned_bytes > 0);
  REQUIRE(presenter.runs().size() == 2);
  CHECK(peak(1) == 0);
  // Nothing fails on an empty lane.
  for (const Command& command : commands()) {
    if (command.apply == nullptr || command.id.starts_with("whatif")) continue;
    CAPTURE(command.id);
    presenter.perform(command);
    draw(presenter);
  }
}

TEST_CASE("a treemap covers its box without overlaps, each value by its area") {
  const std::vector<int64_t> values = {600, 300, 200, 100, 50, 50, 7, 1};
  const Box box{10, 20, 300, 180};
  const std::vector<Box> boxes = treemap(box, values);
  REQUIRE(boxes.size() == values.size());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  const double area = static_cast<double>(box.w) * static_cast<double>(box.h);
  for (size_t i = 0; i < boxes.size(); ++i) {
    const double wanted = area * static_cast<double>(values[i]) / sum;
    const double found = static_cast<double>(boxes[i].w) * static_cast<double>(boxes[i].h);
    CHECK(std::abs(found - wanted) < 0.01 * area / sum + 0.001 * area);
    CHECK(boxes[i].x >= box.x - 0.01F);
    CHECK(boxes[i].right() <= box.right() + 0.01F);
    CHECK(boxes[i].bottom() <= box.bottom() + 0.01F);
    for (size_t j = 0; j < i; ++j) {
      const bool apart =
          boxes[i].x >= boxes[j].right() - 0.01F || boxes[j].x >= boxes[i].right() - 0.01F ||
          boxes[i].y >= boxes[j].bottom() - 0.01F || boxes[j].y >= boxes[i].bottom() - 0.01F;
      CHECK(apart);
    }
  }
  CHECK(treemap(box, {}).empty());
}

}  // namespace shardlens::viewer
