// Levers in the what-if panel of a recorded Python program: which are listed with which peaks, and
// what becomes of those that are run in the background.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <string>
#include <vector>

#include "tests/support/process.h"
#include "tests/support/viewer/acts.h"
#include "tests/support/viewer/lever_programs.h"
#include "viewer/state/session.h"

namespace shardlens::viewer {
namespace {

constexpr Canvas kPanel{1600, 1000, 0, 1};

/// A presenter whose panel is open. It does not wait for what runs if it has no patience.
struct Panel {
  explicit Panel(const LeverPrograms& programs, bool is_patient = true)
      : Panel(programs, programs.state(), is_patient) {}
  Panel(const LeverPrograms& programs, const ViewState& state, bool is_patient = true)
      : presenter(state, "") {
    presenter.record_with(programs.record());
    picture();
    if (!presenter.state().what_if) act(presenter, "whatif");
    picture();
    if (!is_patient) presenter.set_lever_patience(std::chrono::milliseconds(0));
  }

  const Picture& picture() { return presenter.picture(kPanel, plain_fonts(1)); }
  std::string text() { return to_text(picture()); }
  bool shows(const std::string& words) { return text().find(words) != std::string::npos; }
  bool will_show(const std::string& words) {
    return tests::wait_until([&] {
      presenter.follow_levers();
      return shows(words);
    });
  }
  /// Returns the names of the panel's rows.
  std::vector<std::string> rows() { return presenter.facts().levers; }
  /// Chooses a row by keys.
  void choose(const std::string& lever) {
    const auto all = rows();
    REQUIRE(std::ranges::find(all, lever) != all.end());
    for (size_t i = 0; i < all.size(); ++i) {
      if (all[presenter.state().what_if->lever_row] == lever) return;
      act(presenter, "whatif.lever.next");
    }
  }
  void run(const std::string& lever) {
    choose(lever);
    act(presenter, "whatif.lever.run");
  }
  /// Presses a part of a row.
  void press(const std::string& lever, Area::Kind kind) {
    const auto all = rows();
    const auto row = static_cast<size_t>(std::ranges::find(all, lever) - all.begin());
    for (const Area& area : areas_of(picture(), kind)) {
      if (area.index != row) continue;
      presenter.press(area.box.right() - 2, area.box.y + area.box.h / 2);
      return presenter.release();
    }
    FAIL("no such row: " << lever);
  }
  std::vector<std::string> names() {
    presenter.facts();
    std::vector<std::string> names;
    for (const Run& run : presenter.runs()) names.push_back(run.name);
    return names;
  }

  Presenter presenter;
};

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("the panel lists the levers that apply, with the peaks that are known") {
  LeverPrograms programs;
  programs.run.write();
  programs.add_variant("recompute=full", 40);
  programs.add_variant("recompute=full,empty-cache", 30);
  programs.add_variant("optimizer=single", 90000);
  programs.add_variant("model-dtype=bf16", 50,
                       [](auto& one) { one.facts["verdict"]["exit_code"] = 4; });
  Panel panel(programs);
  const Words rows = panel.rows();
  CHECK(Words(rows.begin(), rows.begin() + 8) ==
        Words{"optimizer=fused", "optimizer=single", "empty-cache", "recompute=selective",
              "recompute=every:2", "recompute=full", "model-dtype=bf16",
              "empty-cache,recompute=full"});
  CHECK(panel.shows("as recorded 130.00 MiB of 1.00 GiB"));
  CHECK(panel.shows("70.00 MiB, -60.00 MiB"));  // 40 and 20 reserved more, 10 beside
  CHECK(panel.shows("60.00 MiB, -70.00 MiB"));
  CHECK(panel.shows("80.00 MiB, with retries"));
  CHECK(panel.shows("87.92 GiB: does not fit"));
  CHECK(panel.shows("set-to-none"));
  CHECK(panel.shows("does not apply"));
  CHECK(panel.shows("train.py:7"));  // where the chosen one acts
  CHECK(panel.names() == Words{"run"});
  CHECK(programs.asked().empty());
  // A known peak comes in as a lane without being run.
  panel.run("recompute=full");
  CHECK(panel.names() == Words{"run", "recompute=full"});
  panel.run("recompute=full");
  CHECK(panel.names() == Words{"run", "recompute=full"});
  CHECK(programs.asked().empty());
  CHECK(panel.presenter.messages().empty());
}

TEST_CASE("a lever that is not known is run, and comes in as a lane") {
  LeverPrograms programs;
  programs.run.write();
  programs.prepare("recompute=full", 40);
  Panel panel(programs);
  CHECK(areas_of(panel.picture(), Area::Kind::lever_act).size() > 5);
  panel.press("recompute=full", Area::Kind::lever_act);
  CHECK(panel.names() == Words{"run", "recompute=full"});
  CHECK(panel.shows("70.00 MiB, -60.00 MiB"));
  CHECK(programs.asked() == "recompute=full\n");
  CHECK(panel.presenter.state().focus == 0);
  const std::string folder = programs.run.path + "/with/recompute=full";
  CHECK(panel.presenter.state().files == Words{programs.run.path, folder});
  CHECK(std::filesystem::exists(folder + "/log.txt"));
  // It is an open run like any other from then on.
  panel.presenter.reload();
  CHECK(panel.names() == Words{"run", "recompute=full"});
  Panel again(programs);
  CHECK(again.shows("70.00 MiB, -60.00 MiB"));
  CHECK(again.names() == Words{"run"});
}

TEST_CASE("a run that comes in leaves plans, focus and baseline as they are") {
  LeverPrograms programs;
  programs.run.write();
  programs.prepare("empty-cache", 40);
  ViewState state = programs.state();
  state.plans = {
      {"a plan", R"({"model":"vit-tutorial","data":"synthetic","device":"null:h200"})", ""}};
  Panel panel(programs, state);
  ViewState focused = panel.presenter.state();
  focused.focus = focused.baseline = 1;
  panel.presenter.restore(focused);
  panel.run("empty-cache");
  CHECK(panel.names() == Words{"run", "empty-cache", "a plan"});
  CHECK(panel.presenter.state().focus == 2);
  CHECK(panel.presenter.state().baseline == 2);
}

TEST_CASE("if it is unknown which levers apply, one run finds it out") {
  LeverPrograms programs;
  programs.run.facts.erase("lever_sites");
  programs.run.write();
  programs.prepare("which", 100, [](tests::ProgramFolder& one) {
    one.facts["lever_sites"] = LeverPrograms::sites();
  });
  Panel panel(programs);
  CHECK(panel.rows().size() > 15);
  CHECK(panel.rows().front().empty());
  CHECK(panel.shows("which apply"));
  CHECK_FALSE(panel.shows("does not apply"));
  act(panel.presenter, "whatif.lever.mark");  // there is nothing to mark
  CHECK(panel.presenter.state().what_if->levers.empty());
  panel.run("");
  CHECK(panel.rows().front() == "optimizer=fused");
  CHECK(panel.shows("does not apply"));
  CHECK(panel.names() == Words{"run"});
  CHECK(programs.asked() == "which\n");
}

TEST_CASE("a run that fails shows the program's own error, and never fits") {
  LeverPrograms programs;
  programs.run.write();
  programs.prepare_failure("empty-cache",
                           "Traceback\nshardlens record: nothing was recorded: the program failed "
                           "before it used a GPU: ValueError: no data (train.py:30)\n",
                           1);
  programs.prepare_failure("optimizer=fused",
                           "shardlens record: nothing was recorded: optimizer=fused does not "
                           "apply: it is fused already\n",
                           5);
  programs.prepare("recompute=full", 1, [](auto& one) {
    one.facts["verdict"]["exit_code"] = 5;
    one.facts["verdict"]["line"] = "no verdict: the program failed with exit code 1, KeyError: 7";
  });
  programs.prepare("optimizer=single", 1, [](auto& one) {
    one.facts["verdict"]["exit_code"] = 3;
    one.facts["verdict"]["is_out_of_memory"] = true;
    one.facts["verdict"]["line"] = "does not fit: out of memory in step 1";
  });
  Panel panel(programs);
  panel.run("empty-cache");
  panel.choose("empty-cache");
  CHECK(panel.shows("ValueError: no data"));
  panel.run("recompute=full");
  panel.choose("recompute=full");
  CHECK(panel.shows("KeyError: 7"));
  CHECK(panel.names() == Words{"run"});
  panel.run("optimizer=single");
  panel.choose("optimizer=single");
  CHECK(panel.shows("out of memory"));
  CHECK(panel.shows("out of memory in step 1"));
  panel.run("optimizer=fused");
  panel.choose("optimizer=fused");
  CHECK(panel.shows("it is fused already"));
  CHECK_FALSE(panel.shows("MiB, -"));  // no row has a peak
  REQUIRE(panel.presenter.messages().size() == 3);
  CHECK(
      panel.presenter.messages()[0].starts_with("empty-cache: nothing was recorded: the program"));
  // A failed one is run again when asked, and others go on.
  std::filesystem::remove(programs.prepared("empty-cache.says"));
  std::filesystem::remove(programs.prepared("empty-cache.code"));
  programs.prepare("empty-cache", 40);
  panel.run("empty-cache");
  CHECK(panel.shows("70.00 MiB, -60.00 MiB"));
}

TEST_CASE("a recorder that is missing is an error of the row") {
  LeverPrograms programs;
  programs.run.write();
  Panel panel(programs);
  std::filesystem::remove(programs.record());
  panel.run("empty-cache");
  panel.choose("empty-cache");
  CHECK(panel.shows("failed"));
  CHECK(panel.shows("it printed nothing"));
}

TEST_CASE("a program that was edited is not compared with its recording") {
  LeverPrograms programs;
  programs.run.facts["sources"] = {{"train.py", "before"}};
  programs.run.write();
  programs.prepare("empty-cache", 40, [](auto& one) {
    one.facts["sources"] = {{"train.py", "after"}};
  });
  Panel panel(programs);
  panel.run("empty-cache");
  panel.choose("empty-cache");
  CHECK(panel.shows("train.py has changed since"));
  CHECK(panel.names() == Words{"run"});
}

TEST_CASE("runs wait for each other, are shown while they run, and can be stopped") {
  LeverPrograms programs;
  programs.run.write();
  for (const char* lever : {"empty-cache", "recompute=full", "optimizer=fused"}) {
    programs.prepare(lever, 40);
    programs.wait_with(lever);
  }
  Panel panel(programs, false);
  const auto begun = std::chrono::steady_clock::now();
  panel.run("empty-cache");
  panel.run("recompute=full");
  panel.run("optimizer=fused");
  CHECK(panel.will_show("0 s: stop"));
  CHECK(panel.will_show("waits: stop"));
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(30));
  CHECK(panel.presenter.is_recording());
  CHECK(panel.will_show("1 s: stop"));  // it goes on while the program runs
  panel.press("recompute=full", Area::Kind::lever_act);
  panel.press("empty-cache", Area::Kind::lever_act);
  CHECK(tests::wait_until([&] { return programs.asked() == "empty-cache\noptimizer=fused\n"; }));
  CHECK_FALSE(panel.shows("waits: stop"));
  programs.go_with("optimizer=fused");
  CHECK(panel.will_show("70.00 MiB, -60.00 MiB"));
  CHECK(panel.names() == Words{"run", "optimizer=fused"});
  CHECK_FALSE(std::filesystem::exists(programs.run.path + "/with/empty-cache/profiles"));
  panel.run("recompute=full");
  CHECK(tests::wait_until([&] { return programs.asked().ends_with("recompute=full\n"); }));
  act(panel.presenter, "whatif.lever.stop");
  CHECK(tests::wait_until([&] { return !panel.presenter.is_recording(); }));
  CHECK(panel.names() == Words{"run", "optimizer=fused"});
}

TEST_CASE("what runs is stopped when the viewer is closed") {
  LeverPrograms programs;
  programs.run.write();
  programs.wait_with("empty-cache");
  const auto begun = std::chrono::steady_clock::now();
  {
    Panel panel(programs, false);
    panel.run("empty-cache");
    CHECK(tests::wait_until([&] { return programs.asked() == "empty-cache\n"; }));
  }
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::seconds(10));
}

TEST_CASE("marked levers are run together; those that contradict each other are not") {
  LeverPrograms programs;
  programs.run.write();
  programs.prepare("recompute=full,empty-cache", 30);
  Panel panel(programs);
  panel.press("recompute=every:2", Area::Kind::lever_mark);
  panel.press("recompute=full", Area::Kind::lever_mark);
  CHECK(panel.presenter.state().what_if->levers == Words{"recompute=full"});
  panel.choose("empty-cache");
  act(panel.presenter, "whatif.lever.mark");
  CHECK(panel.shows("Alt+G runs the 2 marked levers"));
  CHECK(record_line(*panel.presenter.state().what_if) ==
        "shardlens record --device null:h100 --with recompute=full,empty-cache -- sh train.py");
  act(panel.presenter, "whatif.lever.run");
  CHECK(panel.names() == Words{"run", "recompute=full+empty-cache"});
  CHECK(programs.asked() == "recompute=full,empty-cache\n");
  CHECK(panel.shows("60.00 MiB, -70.00 MiB"));
  // The row of the set marks its levers.
  act(panel.presenter, {"whatif.lever.mark", "whatif.lever.mark"});
  panel.choose("empty-cache,recompute=full");
  act(panel.presenter, "whatif.lever.mark");
  CHECK(panel.presenter.state().what_if->levers.size() == 2);
}

TEST_CASE("a recording that cannot be run here says why, and nothing is started") {
  for (const std::string why : {"cuda", "moved", "old"}) {
    LeverPrograms programs;
    if (why == "cuda") programs.run.config["flags"] = {"--device", "cuda"};
    if (why == "moved") programs.run.config["directory"] = "/nowhere/at/all";
    if (why == "old") programs.run.config.erase("flags");
    programs.run.write();
    programs.add_variant("recompute=full", 40);
    Panel panel(programs);
    CAPTURE(why);
    CHECK(panel.shows("It cannot be run with levers here"));
    CHECK(panel.shows(why == "cuda" ? "simulated" : why == "moved" ? "/nowhere/at/all" : "older"));
    for (const std::string& lever : panel.rows()) panel.run(lever);
    panel.choose("empty-cache");
    panel.press("empty-cache", Area::Kind::lever_act);
    CHECK(programs.asked().empty());
    CHECK(panel.shows("not known"));
    // An earlier recording can be shown nevertheless.
    CHECK(panel.names() == Words{"run", "recompute=full"});
  }
}

TEST_CASE("a run of an open folder of runs is not opened twice") {
  LeverPrograms programs;
  programs.run.path = programs.folder_.file("runs/as_it_is");
  programs.run.write();
  programs.prepare("empty-cache", 40);
  ViewState state;
  state.files = {programs.folder_.file("runs/")};
  Panel panel(programs, state);
  panel.run("empty-cache");
  CHECK(panel.names() == Words{"as_it_is", "empty-cache"});
  CHECK(panel.presenter.state().files == state.files);
  panel.presenter.reload();
  CHECK(panel.names() == Words{"as_it_is", "empty-cache"});
}

TEST_CASE("the panel follows a program while another one runs") {
  LeverPrograms programs;
  programs.run.write();
  programs.prepare("empty-cache", 40);
  programs.wait_with("empty-cache");
  tests::ProgramFolder other(programs.folder_.file("runs/other"), 300);
  other.write();
  ViewState state = programs.state();
  state.files.push_back(other.path);
  Panel panel(programs, state, false);
  panel.run("empty-cache");
  CHECK(panel.will_show("0 s: stop"));
  act(panel.presenter, {"whatif", "focus.next", "whatif"});
  CHECK(panel.will_show("as recorded 330.00 MiB"));
  CHECK_FALSE(panel.shows("s: stop"));
  programs.go_with("empty-cache");
  CHECK(tests::wait_until([&] {
    panel.presenter.follow_levers();
    return panel.names().size() == 3;
  }));
  act(panel.presenter, {"whatif", "focus.previous", "whatif"});
  CHECK(panel.will_show("70.00 MiB, -60.00 MiB"));
}

TEST_CASE("a session keeps marks, and starts nothing when it is opened") {
  LeverPrograms programs;
  programs.run.write();
  Panel panel(programs);
  panel.choose("recompute=full");
  act(panel.presenter, "whatif.lever.mark");
  const std::string session = programs.folder_.file("s.json");
  save_session(panel.presenter.state(), session);
  Panel again(programs, load_session(session));
  CHECK(again.presenter.state().what_if->levers == Words{"recompute=full"});
  CHECK(again.shows("as recorded 130.00 MiB"));
  CHECK(programs.asked().empty());
}

TEST_CASE("the wheel chooses levers, and tooltips say what a row does") {
  LeverPrograms programs;
  programs.run.write();
  Panel panel(programs);
  const auto rows = areas_of(panel.picture(), Area::Kind::lever);
  REQUIRE(rows.size() > 5);
  const auto tooltip = [&](Area::Kind kind) {
    const Area area = areas_of(panel.picture(), kind).front();
    return panel.presenter.hover_text(area.box.right() - 2, area.box.y + area.box.h / 2);
  };
  CHECK(tooltip(Area::Kind::lever_act).find("in the background") != std::string::npos);
  CHECK(tooltip(Area::Kind::lever_mark).find("Alt+X") != std::string::npos);
  const float middle = rows.front().box.y + rows.front().box.h / 2;
  const float x = rows.front().box.x + 60;
  CHECK(panel.presenter.hover_text(x, middle).starts_with("optimizer=fused: steps in one kernel"));
  for (int i = 0; i < 30; ++i) panel.presenter.wheel(x, middle, -1);
  CHECK(panel.presenter.state().what_if->lever_row == 30 % panel.rows().size());
  panel.presenter.wheel(x, middle, 1);
  CHECK(panel.presenter.state().what_if->lever_row == 29 % panel.rows().size());
}

}  // namespace shardlens::viewer
