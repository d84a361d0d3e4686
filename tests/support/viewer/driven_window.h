// The viewer's window on a display without a screen, driven by keyboard and mouse events.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/process.h"
#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/view_recording.h"
#include "tests/support/temporary_folder.h"
#include "viewer/state/session.h"

namespace shardlens::viewer {

/// An OpenGL driver keeps memory until the process ends, which is not ours to free.
constexpr const char* kDriverLeaks = "ASAN_OPTIONS=detect_leaks=0";

/// Two recordings of one training run that differ in what they keep.
struct Files {
  Files() {
    tests::write_profile(a, tests::view_recording({.keep_weights = true}));
    tests::write_profile(b, tests::view_recording({.forward_ns = 9'000'000}));
  }
  tests::TemporaryFolder folder;
  std::string a = folder.file("keep.slp");
  std::string b = folder.file("reshard.slp");
};

/// Returns the first program for driving windows that is not installed; empty if all are.
inline std::string missing_driver(const std::vector<std::string>& others = {}) {
  std::vector<std::string> programs = {"Xvfb", "xdotool"};
  programs.insert(programs.end(), others.begin(), others.end());
  for (const std::string& program : programs) {
    if (!std::filesystem::exists("/usr/bin/" + program)) return program + " is not installed";
  }
  return "";
}

/// A separate display without a screen.
class Display {
 public:
  Display()
      : server_({"/bin/sh", "-c",
                 "exec Xvfb -displayfd 3 -screen 0 1280x900x24 -nolisten tcp 3>" + number_file()}) {
    const auto has_number = [&] {
      return std::filesystem::exists(number_file()) && !number().empty();
    };
    REQUIRE(tests::wait_until(has_number));
  }
  std::string name() const { return "DISPLAY=:" + number(); }

 private:
  std::string number_file() const { return folder_.file("number"); }
  std::string number() const {
    std::string text = tests::read_file(number_file());
    return text.ends_with('\n') ? text.substr(0, text.size() - 1) : "";
  }

  tests::TemporaryFolder folder_;
  tests::Process server_;
};

class DrivenWindow {
 public:
  struct Options {
    std::string folder;  // in which the window is started and keeps its settings
    std::string session;
    std::string editor{};
    std::vector<std::string> command{};  // instead of the one that opens `session`
  };

  DrivenWindow(const Display& display, const Options& options)
      : display_(display.name()), session_(options.session), program_(words_of(options)) {
    const tests::ProcessEnd found =
        xdotool({"search", "--sync", "--onlyvisible", "--name", "^Shardlens$"});
    REQUIRE(found.exit_code == 0);
    window_ = found.out.substr(0, found.out.find('\n'));
    REQUIRE(xdotool({"windowfocus", "--sync", window_}).exit_code == 0);
  }

  // Each press, click or notch of the wheel is an act; so is a typed text.
  void keys(const std::vector<std::string>& names) {
    for (const std::string& name : names) act({"key", name});
  }
  void type(const std::string& text) { act({"type", "--delay", "0", text}); }
  void click(int x, int y) {
    point(x, y);
    act({"click", "1"});
  }
  /// Turns the wheel up, or down if the notches are negative, while a named key is held.
  void wheel(int x, int y, int notches, const std::string& held = "") {
    point(x, y);
    if (!held.empty()) do_silently({"keydown", held});
    for (int i = 0; i < std::abs(notches); ++i) act({"click", notches > 0 ? "4" : "5"});
    if (!held.empty()) do_silently({"keyup", held});
  }
  void drag(int x, int y, int to_x, int to_y) { drag_with("1", x, y, to_x, to_y); }
  void drag_right(int x, int y, int to_x, int to_y) { drag_with("3", x, y, to_x, to_y); }
  void point(int x, int y) {
    do_silently({"mousemove", "--window", window_, std::to_string(x), std::to_string(y)});
  }
  /// Returns the number of acts since the last call.
  int take_acts() { return std::exchange(acts_, 0); }

  /// Saves the session until it is as it should be, twice in a row: then all input was drawn, too,
  /// as the second notch of a wheel. The window may be slow, so the deadline only matters if it
  /// hangs.
  bool settles(const std::function<bool(const ViewState&)>& wanted) {
    constexpr int kMostSaves = 200;
    std::optional<ViewState> before;
    for (int i = 0; i < kMostSaves; ++i) {
      std::filesystem::remove(session_);
      if (!saves()) return false;
      ViewState saved = load_session(session_);
      if (wanted(saved) && saved == before) return true;
      before = std::move(saved);
    }
    return false;
  }
  void quit() {
    do_silently({"key", "ctrl+q"});
    CHECK(program_.wait().exit_code == 0);
  }

 private:
  static constexpr std::chrono::seconds kStandstill{300};

  /// Asks for a save until there is one: a window that is still opening its first run has nothing
  /// to save.
  bool saves() {
    constexpr std::chrono::seconds kPause{5};
    const auto is_saved = [&] { return std::filesystem::exists(session_); };
    for (auto waited = kPause; waited <= kStandstill; waited += kPause) {
      do_silently({"key", "ctrl+s"});
      if (tests::wait_until(is_saved, kPause)) return true;
    }
    return false;
  }

  std::vector<std::string> words_of(const Options& options) const {
    std::vector<std::string> words = {"/usr/bin/env",
                                      "-C",
                                      options.folder,
                                      display_,
                                      kDriverLeaks,
                                      "XDG_CACHE_HOME=" + options.folder + "/cache",
                                      "SHARDLENS_EDITOR=" + options.editor};
    std::vector<std::string> command = options.command;
    if (command.empty()) {
      command = {SHARDLENS, "view", "--session", session_, "--size", "1200x800", "--no-cache"};
    }
    words.insert(words.end(), command.begin(), command.end());
    return words;
  }
  void drag_with(const std::string& button, int x, int y, int to_x, int to_y) {
    point(x, y);
    do_silently({"mousedown", button});
    point((x + to_x) / 2, (y + to_y) / 2);
    point(to_x, to_y);
    act({"mouseup", button});
  }
  void act(const std::vector<std::string>& arguments) {
    do_silently(arguments);
    ++acts_;
  }
  void do_silently(const std::vector<std::string>& arguments) {
    REQUIRE(xdotool(arguments).exit_code == 0);
  }
  tests::ProcessEnd xdotool(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"/usr/bin/env", display_, "timeout", "300", "xdotool"});
    return tests::run(arguments);
  }

  std::string display_;
  std::string session_;
  std::string window_;
  tests::Process program_;
  int acts_ = 0;
};

}  // namespace shardlens::viewer
