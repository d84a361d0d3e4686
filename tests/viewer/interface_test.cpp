// Tests the window's contents without a window: ImGui builds its frames, which are not drawn. Keys
// and the pointer reach the commands, and every question, menu and sheet can be shown.

#include "viewer/ui/interface.h"

#include <imgui.h>

#include <algorithm>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cctype>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <string_view>

#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/view_recording.h"
#include "tests/support/temporary_folder.h"

namespace shardlens::viewer {
namespace {

class NoBackdrop : public Backdrop {
 public:
  void add(const Image&, ImDrawList&) override {}
};

ViewState one_run(const tests::TemporaryFolder& folder) {
  tests::write_profile(folder.file("run.slp"), tests::view_recording());
  ViewState state;
  state.files = {folder.file("run.slp")};
  return state;
}

/// A recording, and ImGui's context with an interface to the recording.
class Stage {
 public:
  Stage() {
    ImGui::CreateContext();
    ImGui::GetIO().IniFilename = nullptr;
    ImGui::GetIO().DisplaySize = {1200, 800};
    ImGui::GetIO().DeltaTime = 1.0F / 60;
    fonts.build("", 1);
    frame();
  }
  ~Stage() { ImGui::DestroyContext(); }

  void frame() {
    ImGui::NewFrame();
    interface.draw({1200, 800, 1, true});
    ImGui::Render();
    request = interface.take_request();
  }
  /// The text that can be read in a frame's windows.
  std::string texts(const std::function<void()>& draw) {
    ImGui::NewFrame();
    ImGui::LogToClipboard();
    draw();
    ImGui::LogFinish();
    ImGui::Render();
    return ImGui::GetClipboardText();
  }
  void press(std::string_view key) {
    interface.press(parse_chord(key));
    frame();
  }
  void type(const std::string& text) {
    letters(text);
    press("Enter");
  }
  /// Letter keys, all pressed between two frames.
  void letters(const std::string& text) {
    for (const char c : text) {
      const auto character = static_cast<unsigned char>(c);
      interface.take(
          KeyPress{with_character(chord_of(std::toupper(character), 0), character), character});
    }
  }
  const ViewState& state() const { return presenter.state(); }

  tests::TemporaryFolder folder;
  Presenter presenter{one_run(folder), ""};
  FontSet fonts;
  NoBackdrop backdrop;
  Interface interface { presenter, fonts, backdrop };
  Request request = Request::none;
};

}  // namespace

TEST_CASE("a key is what the user's keyboard says it is") {
  struct Press {
    int key;  // named by its place on an American keyboard
    int modifiers;
    const char* name;
    unsigned character;  // 0: none
    std::string_view meant;
  };
  constexpr int kShift = 1;  // as GLFW numbers them
  constexpr int kCtrl = 2;
  constexpr int kAlt = 4;
  const std::vector<Press> presses = {
      {'Z', 0, "z", 'z', "Z"},                  // American
      {'Y', 0, "z", 'z', "Z"},                  // German
      {'Y', kShift, "z", 'Z', "Shift+Z"},       //
      {'7', kShift, "7", '/', "/"},             //
      {'8', 0, "8", '[', "["},                  // with AltGr
      {'/', 0, "/", '/', "/"},                  // American
      {'1', 0, "&", '&', "&"},                  // French
      {'1', kShift, "&", '1', "1"},             //
      {'Q', kCtrl, "a", 0, "Ctrl+A"},           //
      {'P', kCtrl, "p", 0, "Ctrl+P"},           // American
      {'1', kAlt, "1", 0, "Alt+1"},             // American
      {'1', kAlt, "&", 0, "Alt+1"},             // French
      {'6', kCtrl, "-", 0, "Ctrl+-"},           //
      {'P', 0, "\xd0\xb7", 0x437, "P"},         // Russian: by its place
      {'=', kCtrl, "=", 0, "Ctrl+="},           // American
      {'=', kCtrl + kShift, "=", 0, "Ctrl+="},  //
      {']', kCtrl, "+", 0, "Ctrl+="},           // German
      {290, 0, nullptr, 0, "F1"},               //
      {258, kShift, nullptr, 0, "Shift+Tab"},   //
  };
  for (const Press& press : presses) {
    CAPTURE(press.meant);
    KeyChord chord = chord_of(press.key, press.modifiers, press.name);
    if (press.character != 0) chord = with_character(chord, press.character);
    CHECK(chord == parse_chord(press.meant));
  }
  constexpr int kKeypad4 = 324;  // an arrow or a digit
  CHECK(chord_of(kKeypad4, 0, "4") != parse_chord("4"));
  CHECK(with_character(chord_of(kKeypad4, 0, "4"), '4') == parse_chord("4"));
}

TEST_CASE("every key of the table is a key of the keyboard, and no two are the same") {
  std::set<std::string> chords;
  for (const Command& command : commands()) {
    const KeyChord chord = parse_chord(command.key);
    CAPTURE(command.key);
    CHECK(chord.code > 0);
    CHECK(chords
              .insert(std::to_string(chord.code) + std::to_string(chord.ctrl) +
                      std::to_string(chord.shift) + std::to_string(chord.alt))
              .second);
  }
}

TEST_CASE("every command can be given by its key, and by its title in the palette") {
  for (const Command& command : commands()) {
    CAPTURE(command.id);
    ViewState by_key;
    Request asked{};
    {
      Stage stage;
      ViewState wanted = stage.state();
      if (command.apply != nullptr) command.apply(wanted, stage.presenter.facts());
      stage.press(command.key);
      CHECK(stage.state() == wanted);  // the result of the table's function on the same state
      by_key = stage.state();
      asked = stage.request;
    }
    Stage stage;
    stage.press("Ctrl+P");
    stage.type(std::string(command.title));
    CHECK(stage.request == asked);
    by_key.files = stage.state().files;
    const auto path = [&](std::vector<std::string>& keys) {
      for (std::string& key : keys) key = by_key.files[0];
    };
    path(by_key.lanes.folded);
    path(by_key.lanes.closed);
    CHECK(stage.state() == by_key);
  }
}

TEST_CASE("a search, a note and a path are typed") {
  Stage stage;
  stage.press("/");
  stage.type("mlp3 >1MiB");
  CHECK(stage.state().search == "mlp3 >1MiB");
  stage.press("/");
  stage.press("Escape");
  stage.press("M");
  stage.type("here it grows");
  REQUIRE(stage.state().notes.size() == 1);
  CHECK(stage.state().notes[0].text == "here it grows");
  stage.press("M");
  stage.type("and here");
  stage.press("Escape");
  stage.press("0");
  const ViewState unmoved = stage.state();
  stage.press("Alt+M");
  stage.press("Down");
  stage.press("Delete");
  CHECK(stage.state().notes.size() == 1);
  stage.press("Enter");
  CHECK(stage.state().cursor == stage.state().notes[0].x);
  CHECK_FALSE(unmoved.cursor.has_value());
  stage.press("Ctrl+N");
  stage.type("!");
  CHECK(stage.presenter.runs().front().name == "!");
  stage.press("Ctrl+O");
  stage.type("/some/run");
  CHECK(stage.request == Request::open_file);
  CHECK(stage.interface.path() == "/some/run");
  // A search that makes no sense is reported, and changes nothing.
  stage.press("Ctrl+K");
  stage.press("/");
  stage.type(">many");
  CHECK(stage.state().search.empty());
  stage.frame();
}

TEST_CASE(
    "what is typed before a slow frame is whole: the key of the question, its text and Enter") {
  Stage stage;
  stage.letters("/mlp3 >1MiB");
  stage.interface.press(parse_chord("Enter"));
  stage.interface.press(parse_chord("T"));
  stage.frame();
  CHECK(stage.state().search == "mlp3 >1MiB");
  CHECK(stage.state().theme == Theme::dark);
  stage.letters("/");
  stage.frame();
  stage.letters("at");  // the last search is selected, so these replace it
  stage.interface.press(parse_chord("Backspace"));
  stage.frame();
  stage.letters("ttn");
  stage.interface.press(parse_chord("Enter"));
  stage.frame();
  CHECK(stage.state().search == "attn");
}

TEST_CASE("a line is changed at its cursor, a character at a time, and holds what was pasted") {
  LineEditor line;
  const auto keys = [&](const std::vector<std::string>& names) {
    for (const std::string& name : names) line.press({parse_chord(name)});
  };
  line.start("first");
  CHECK(line.is_selected());
  keys({"Left"});
  CHECK_FALSE(line.is_selected());
  CHECK(line.cursor() == 4);
  line.press({KeyChord{}, 0xFC});
  CHECK(line.text() == "firs\xC3\xBCt");
  keys({"Left", "Backspace", "End", "Backspace", "Home", "Delete"});
  CHECK(line.text() == "ir\xC3\xBC");
  line.put("a\nb");
  CHECK(line.text() == "abir\xC3\xBC");
  keys({"End", "Backspace"});
  CHECK(line.text() == "abir");
  CHECK_FALSE(line.press({parse_chord("Ctrl+X"), 'x'}));
  keys({"Ctrl+A", "Delete"});
  CHECK(line.text().empty());
  keys({"Backspace", "Delete", "Left", "Right"});
  CHECK(line.cursor() == 0);
}

TEST_CASE("a run is found by its folder: a folder is entered, a run is opened") {
  Stage stage;
  std::filesystem::create_directories(stage.folder.file("all/run2/profiles"));
  std::filesystem::create_directories(stage.folder.file("all/run10"));
  for (const char* name : {"all/run2/profiles/rank0.slp", "all/run10/rank0.slp"}) {
    tests::write_profile(stage.folder.file(name), tests::view_recording({.steps = 1}));
  }
  tests::write_file(stage.folder.file("all/notes.txt"), "nothing to open");
  const auto found = browse(stage.folder.file("all/"), {});
  REQUIRE(found.size() == 3);
  CHECK(found[0].what == "2 runs");
  CHECK(found[1].name == "run2");
  CHECK(found[1].what == "run of 1 rank");
  CHECK(found[2].name == "run10");
  stage.interface.set_recent({stage.folder.file("all/run2"), stage.folder.file("gone")});
  stage.press("Ctrl+O");
  stage.press("Enter");
  CHECK(stage.request == Request::open_file);
  CHECK(stage.interface.path() == stage.folder.file("all/run2"));  // the last opened path
  stage.press("Ctrl+O");
  stage.type(stage.folder.file("al"));
  CHECK(stage.request == Request::none);  // it continues in the folder
  stage.press("Down");
  stage.press("Down");
  stage.press("Enter");
  CHECK(stage.interface.path() == stage.folder.file("all/run10"));
  CHECK(browse("/no/such/folder/", {}).empty());
}

TEST_CASE("the selection is copied, and its line is asked for") {
  Stage stage;
  stage.press("Ctrl+C");
  const char* const before = ImGui::GetClipboardText();
  CHECK((before == nullptr || *before == '\0'));
  stage.press("S");
  REQUIRE(stage.state().pick);
  stage.press("Ctrl+C");
  CHECK(ImGui::GetClipboardText() == stage.presenter.pick_text());
  CHECK_FALSE(stage.presenter.pick_text().empty());
  stage.press("E");
  CHECK(stage.request == Request::edit_pick);
}

TEST_CASE("typed letters are not commands") {
  Stage stage;
  stage.press("/");
  const ViewState before = stage.state();
  for (const char* key : {"T", "1", "V", "Down"}) stage.press(key);
  CHECK(stage.state() == before);
  stage.press("Escape");
  stage.press("T");
  CHECK(stage.state().theme == Theme::dark);
}

TEST_CASE("two keys between two frames are both taken") {
  Stage stage;
  stage.interface.press(parse_chord("T"));
  stage.interface.press(parse_chord("1"));
  stage.frame();
  CHECK(stage.state().theme == Theme::dark);
  CHECK(stage.state().layout == LaneLayout::rows);
}

TEST_CASE("keys after a request wait until it is served, and none is lost") {
  Stage stage;
  for (const char* key : {"Ctrl+S", "T", "Ctrl+S", "Ctrl+E", "1"}) {
    stage.interface.press(parse_chord(key));
  }
  stage.frame();
  CHECK(stage.request == Request::save_session);
  CHECK(stage.state().theme == Theme::light);  // as it was when the session was to be saved
  CHECK(stage.interface.has_inputs());
  stage.frame();
  CHECK(stage.request == Request::save_session);
  CHECK(stage.state().theme == Theme::dark);
  stage.frame();
  CHECK(stage.request == Request::export_picture);
  CHECK(stage.state().layout == LaneLayout::columns);
  stage.frame();
  CHECK(stage.request == Request::none);
  CHECK(stage.state().layout == LaneLayout::rows);
  CHECK_FALSE(stage.interface.has_inputs());
}

TEST_CASE("the pointer reaches the lanes, and all input between two frames counts") {
  Stage stage;
  const auto button = [&](Button button, float x, float y, bool is_down) {
    stage.interface.take(ButtonChange{x, y, button, is_down});
  };
  button(Button::left, 400, 350, true);
  stage.frame();
  REQUIRE(stage.state().cursor.has_value());
  stage.interface.take(PointerMove{500, 350});
  stage.frame();
  REQUIRE(stage.state().selection.has_value());
  const double end = stage.state().selection->end;
  stage.interface.take(PointerMove{550, 350});
  button(Button::left, 550, 350, false);
  stage.interface.take(PointerMove{600, 350});  // when the button is up again
  stage.frame();
  CHECK(stage.state().selection->end > end);
  const double last = stage.state().selection->end;
  stage.frame();
  CHECK(stage.state().selection->end == last);
  stage.interface.take(WheelTurn{.x = 500, .y = 350, .notches = 2});
  stage.frame();
  REQUIRE(stage.state().view.has_value());
  const Range before = *stage.state().view;
  button(Button::other, 500, 350, true);
  stage.interface.take(PointerMove{450, 350});
  button(Button::other, 450, 350, false);
  stage.frame();
  CHECK(stage.state().view->begin > before.begin);
}

TEST_CASE("the menu's line does not belong to the picture") {
  Stage stage;
  const ViewState before = stage.state();
  stage.interface.take(ButtonChange{400, 5, Button::left, true});
  stage.interface.take(ButtonChange{400, 5, Button::left, false});
  stage.interface.take(WheelTurn{.x = 400, .y = 5, .notches = 2});
  stage.frame();
  CHECK(stage.state() == before);
}

TEST_CASE("a turn of the wheel counts with the keys and pointer of that moment") {
  Stage stage;
  ImGui::GetIO().MousePos = {20, 700};
  stage.frame();
  stage.interface.take(WheelTurn{.x = 400, .y = 300, .notches = 1, .alt = true});
  stage.interface.take(WheelTurn{.x = 400, .y = 300, .notches = 1});
  stage.frame();
  CHECK(stage.state().heights.length() < 1);
  REQUIRE(stage.state().view.has_value());
  const Range before = *stage.state().view;
  stage.interface.take(WheelTurn{.x = 400, .y = 300, .notches = 1, .shift = true});
  stage.frame();
  CHECK(stage.state().view->length() == Catch::Approx(before.length()));
  CHECK(stage.state().view->begin != before.begin);
  const ViewState now = stage.state();
  stage.press("F1");
  stage.interface.take(WheelTurn{.x = 400, .y = 300, .notches = 1});  // over the sheet of keys
  stage.frame();
  CHECK(stage.state() == now);
}

TEST_CASE("the interface can be shown in every size and theme") {
  Stage stage;
  for (const char* key : {"F1", "Escape", "Ctrl+=", "T", "F1", "Escape", "T", "Ctrl+P", "Escape"}) {
    stage.press(key);
    stage.frame();
  }
  CHECK(ImGui::GetDrawData()->TotalVtxCount > 0);
}

TEST_CASE("the key sheet has room for every command's key and title") {
  Stage stage;
  ImGui::GetIO().DisplaySize = {2400, 4000};
  stage.frame();
  const int without = ImGui::GetDrawData()->TotalVtxCount;
  stage.press("F1");
  stage.frame();
  std::ptrdiff_t letters = 0;
  for (const Command& command : commands()) {
    for (const std::string_view text : {command.key, command.title}) {
      letters += std::ranges::count_if(text, [](char c) { return c != ' '; });
    }
  }
  // Text that is cut off is not drawn: a letter has four corners.
  CHECK(ImGui::GetDrawData()->TotalVtxCount - without >= 4 * letters);
}

TEST_CASE("a frame says how far recordings have been read") {
  Stage stage;
  const auto progress = [](double part) { draw_progress(part, colors_of(Theme::dark)); };
  stage.texts([&] { progress(0.25); });
  const std::string text = stage.texts([&] { progress(0.5); });
  CHECK(text.find("Reading recordings") != std::string::npos);
  CHECK(text.find("50 %") != std::string::npos);
}

TEST_CASE("Escape closes an open menu, and nothing else") {
  Stage stage;
  stage.press("P");
  REQUIRE(stage.state().cursor);
  ImGui::GetIO().MousePos = {20, 8};
  stage.frame();
  ImGui::GetIO().MouseDown[0] = true;
  stage.frame();
  ImGui::GetIO().MouseDown[0] = false;
  stage.frame();
  const auto is_open = [&] {
    const std::string text = stage.texts([&] { stage.interface.draw({1200, 800, 1, true}); });
    return text.find("Export a page for any browser") != std::string::npos;
  };
  CHECK(is_open());
  stage.press("Escape");
  stage.frame();
  CHECK_FALSE(is_open());
  CHECK(stage.state().cursor);
}

TEST_CASE("the palette finds what leaks and what runs out of memory") {
  for (const char* const word : {"leak", "oom", "out of memory"}) {
    CAPTURE(word);
    CHECK_FALSE(matching_commands(word).empty());
  }
}

}  // namespace shardlens::viewer
