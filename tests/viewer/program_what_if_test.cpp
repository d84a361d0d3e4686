// Tests what-if questions. A recorded program, which cannot be planned, is recorded again by a line
// to copy; a recording that does not say how it was made says why nothing can be asked. If a plan
// can be made, a control says what it would give before it is turned.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/units.h"
#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/view_recording.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/viewer/acts.h"
#include "viewer/scene/presenter.h"

namespace shardlens::viewer {
namespace {

constexpr Canvas kPanel{1600, 1000, 0, 1};

WhatIfEdit program_edit(const std::vector<std::string>& command, int64_t world = 64,
                        const std::string& device = "null:h100") {
  const nlohmann::json config = {
      {"command", command}, {"device", device}, {"world", world}, {"solo_rank", 5}};
  return {.of = "llama", .base = config.dump(), .config = config.dump(), .gpu = "h100"};
}

std::string panel_text(Presenter& presenter) {
  return to_text(presenter.picture(kPanel, plain_fonts(kPanel.scale)));
}

/// A recording whose own description is `config`.
ViewState recorded(const tests::TemporaryFolder& folder, const std::string& config) {
  auto profile = tests::view_recording({.rank = 1, .steps = 1});
  profile.header.config = config;
  tests::write_profile(folder.file("llama.slp"), profile);
  ViewState state;
  state.files = {folder.file("llama.slp")};
  return state;
}

}  // namespace

TEST_CASE("a recorded program is recorded again on other ranks, or with another batch") {
  WhatIfEdit now =
      program_edit({"python", "train.py", "--batch-size", "32", "--name", "it's mine"});
  CHECK(what_if_kind_of(now) == WhatIfKind::recording);
  CHECK(
      record_line(now) ==
      "shardlens record --device null:h100 --world 64 --rank 5 -- python train.py --batch-size 32 "
      "--name 'it'\\''s mine'");
  turn(now, Control::batch, 1);
  turn(now, Control::world, 1);
  CHECK(record_line(now) ==
        "shardlens record --device null:h100 --world 128 --rank 5 -- python train.py --batch-size "
        "64 --name 'it'\\''s mine'");
  for (int i = 0; i < 6; ++i) turn(now, Control::world, -1);
  CHECK(record_line(now).find("--world 2 --rank 1 ") != std::string::npos);
  for (int i = 0; i < kControls; ++i) {
    const auto control = static_cast<Control>(i);
    const bool has_control = control == Control::batch || control == Control::world;
    CHECK(choices_of(now, control).words.empty() != has_control);
    const WhatIfEdit before = now;
    if (!has_control) turn(now, control, 1);
    if (!has_control) CHECK(now == before);
  }
}

TEST_CASE("a batch is found only by its name, and ranks are left to a launcher") {
  struct Case {
    std::vector<std::string> command;
    std::string batch;  // empty: no batch
    std::string line;
  };
  const std::string record = "shardlens record --device null:h100";
  const std::vector<Case> cases = {
      {{"python", "a.py", "bs=8"}, "8", record + " --world 64 --rank 5 -- python a.py bs=16"},
      {{"python", "a.py", "--train.batch_size=4"},
       "4",
       record + " --world 64 --rank 5 -- python a.py --train.batch_size=8"},
      {{"python", "batch.py", "7"}, "", record + " --world 64 --rank 5 -- python batch.py 7"},
      {{"python", "a.py", "--batch", "auto"},
       "",
       record + " --world 64 --rank 5 -- python a.py --batch auto"},
      {{"torchrun", "--nproc_per_node", "8", "a.py", "--bs", "2"},
       "2",
       record + " -- torchrun --nproc_per_node 8 a.py --bs 4"}};
  for (const Case& one : cases) {
    WhatIfEdit now = program_edit(one.command);
    CAPTURE(one.line);
    const Choices batch = choices_of(now, Control::batch);
    CHECK((batch.words.empty() ? "" : batch.words[batch.chosen]) == one.batch);
    turn(now, Control::batch, 1);
    CHECK(record_line(now) == one.line);
  }
  WhatIfEdit flagged = program_edit({"python", "a.py"});
  auto config = nlohmann::json::parse(flagged.base);
  config["flags"] = {"--device", "null:h100", "--world", "64",
                     "--steps",  "3",         "--true",  "a b.py:1"};
  config["levers"] = {{"compile", ""}};
  flagged.config = config.dump();
  toggle_lever(flagged, "recompute=full");
  CHECK(record_line(flagged) ==
        record +
            " --world 64 --rank 5 --steps 3 --true 'a b.py:1' --with compile,recompute=full "
            "-- python a.py");
  CHECK(record_line(program_edit({"python", "a.py"}, 1, "cuda")) == record + " -- python a.py");
}

TEST_CASE("the panel of a recorded program says what can be done without a plan") {
  const tests::TemporaryFolder folder;
  Presenter presenter(recorded(folder, R"({"command":["python","llama.py"]})"), "");
  panel_text(presenter);
  act(presenter, "whatif");
  const std::string text = panel_text(presenter);
  CHECK(text.find("Alt+L copies this command:") != std::string::npos);
  CHECK(text.find("older") != std::string::npos);
  CHECK(text.find("its arguments set no batch size") != std::string::npos);
  CHECK(text.find("no plan\n") == std::string::npos);
  CHECK(presenter.runs().size() == 1);
  CHECK(presenter.messages().empty());
  CHECK(record_line(*presenter.state().what_if) ==
        "shardlens record --device null:h200 --world 2 --rank 1 -- python llama.py");
  act(presenter, "whatif.keep");
  CHECK(presenter.state().plans.empty());
}

TEST_CASE("the panel of a recording without a configuration has no controls") {
  const tests::TemporaryFolder folder;
  Presenter presenter(recorded(folder, ""), "");
  panel_text(presenter);
  act(presenter, "whatif");
  CHECK(panel_text(presenter).find("No plan") != std::string::npos);
  const auto& areas = presenter.picture(kPanel, plain_fonts(kPanel.scale)).areas;
  CHECK(std::ranges::find(areas, Area::Kind::control, &Area::kind) == areas.end());
}

TEST_CASE("a control's tooltip says what it would give, and it then gives that") {
  const tests::TemporaryFolder folder;
  ViewState state;
  state.files = {folder.file("config.json")};
  tests::write_file(state.files[0],
                    R"({"model":"vit-tutorial","data":"synthetic","device":"null:h200"})");
  Presenter presenter(state, "");
  panel_text(presenter);
  act(presenter, "whatif");
  panel_text(presenter);
  const Choices batch = choices_of(*presenter.state().what_if, Control::batch);
  const auto areas = presenter.picture(kPanel, plain_fonts(kPanel.scale)).areas;
  const auto next = std::ranges::find_if(areas, [&](const Area& area) {
    return area.kind == Area::Kind::control && area.run == 0 && area.index == batch.chosen + 1;
  });
  REQUIRE(next != areas.end());
  const std::string text =
      presenter.hover_text(next->box.x + next->box.w / 2, next->box.y + next->box.h / 2);
  CHECK(text.starts_with("batch: activations grow with it"));
  act(presenter, "whatif.batch.more");
  panel_text(presenter);
  const int64_t peak = presenter.runs().back().at_peak().lane.peak().max_bytes;
  CHECK(text.find("peak " + bytes_text(peak) + ", +") != std::string::npos);
  CHECK(text.find("% predicted step time\nfits: ") != std::string::npos);
  CHECK(panel_text(presenter).find(" %, predicted, cold") != std::string::npos);
}

}  // namespace shardlens::viewer
