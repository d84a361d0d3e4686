#include "viewer/app/viewer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>

#include "base/output_file.h"
#include "viewer/app/editor.h"
#include "viewer/app/figure.h"
#include "viewer/app/screenshot.h"
#include "viewer/app/window.h"
#include "viewer/figure/png.h"
#include "viewer/model/lane_cache.h"
#include "viewer/page/page.h"
#include "viewer/scene/panels/comparison_report.h"
#include "viewer/scene/presenter.h"
#include "viewer/state/commands.h"
#include "viewer/state/session.h"

namespace shardlens::viewer {

namespace {

constexpr int kMostPixels = 16384;  // per side
constexpr const char* kWindowSize = "1600x1000";
constexpr const char* kFigureSize = "800x500";

struct Options {
  std::vector<std::string> runs;
  std::optional<int> device;
  std::optional<Clock> clock;
  std::string session;
  bool last = false;
  std::string range;
  std::string screenshot;
  std::string figure;
  std::string report;
  std::string page;
  std::string size;
  double scale = 0;
  std::string baseline;
  std::vector<std::string> commands;
  std::string font;
  std::string editor;
  bool caches = true;
  std::string text;  // that --help prints
};

Options parse_options(const std::vector<std::string>& arguments) {
  Options options;
  CLI::App app{"Shows runs side by side: memory over time, by category.", "shardlens view"};
  app.add_option("RUN", options.runs,
                 "a run's folder, a folder of runs, a .slp file, a plan's .json, a trace of "
                 "torch.profiler or a snapshot that "
                 "PyTorch made; one or more");
  app.add_option("--device", options.device, "the GPU to show of a snapshot that has several");
  std::string clock;
  app.add_option("--clock", clock,
                 "the times of a recording made with --time: predicted (default), or recorded")
      ->check(CLI::IsMember({"predicted", "recorded"}));
  app.add_option("--session", options.session, "a session saved with Ctrl+S");
  app.add_flag("--last", options.last, "the session of the window that was closed last");
  app.add_option("--range", options.range,
                 "part of the x axis to show first, as BEGIN:END: 3:5 for steps 3 and 4");
  app.add_option("--screenshot", options.screenshot, "write the picture as PNG; needs no display");
  app.add_option("--figure", options.figure,
                 "write plots and legend only, as .svg, .pdf or .png; --size is in points");
  app.add_option("--report", options.report, "write a .txt, .json or .csv; needs no OpenGL");
  app.add_option("--export", options.page,
                 "write one .html page to share, for any browser; needs no OpenGL");
  app.add_option("--size", options.size,
                 "WIDTHxHEIGHT in pixels; default: 1600x1000, of a figure 800x500");
  app.add_option("--scale", options.scale, "pixels per point: 2 for a high-resolution screen");
  app.add_option("--baseline", options.baseline,
                 "name of the run that the others are compared with");
  app.add_option("--do", options.commands, "commands to do first, such as layout.rows,theme.next")
      ->delimiter(',');
  app.add_option("--font", options.font, "a .ttf file");
  app.add_option("--editor", options.editor,
                 "the command that E opens a line with, such as 'code -g {file}:{line}'")
      ->envname("SHARDLENS_EDITOR");
  app.add_flag("!--no-cache", options.caches,
               "neither read nor write the cache of opened recordings");
  bool wants_help = false;
  app.set_help_flag();
  app.add_flag("--help,-h", wants_help, "this text");
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    throw std::invalid_argument(fmt::format("{}; see --help", error.what()));
  }
  if (!clock.empty()) options.clock = choice_named<Clock>(clock);
  if (wants_help) {
    options.text = app.help();
    for (const Command& command : commands()) {
      options.text += fmt::format("  {:<14} {:<20} {}\n", command.key, command.id, command.title);
    }
  }
  return options;
}

struct Size {
  int width = 0;
  int height = 0;
};

Size parse_size(const std::string& text) {
  Size size;
  const char* const end = text.data() + text.size();
  const auto [x, first] = std::from_chars(text.data(), end, size.width);
  const bool has_x = first == std::errc{} && x != end && *x == 'x';
  const auto [stop, second] = std::from_chars(has_x ? x + 1 : end, end, size.height);
  const auto is_side = [](int pixels) { return pixels >= 64 && pixels <= kMostPixels; };
  if (!has_x || second != std::errc{} || stop != end || !is_side(size.width) ||
      !is_side(size.height)) {
    throw std::invalid_argument(fmt::format(
        "--size {}: not a size; give WIDTHxHEIGHT of 64 to {} pixels, such as 1600x1000", text,
        kMostPixels));
  }
  return size;
}

bool wants_window(const Options& options) {
  return options.screenshot.empty() && options.figure.empty() && options.report.empty() &&
         options.page.empty();
}

void require_consistent(const Options& options) {
  Editor{options.editor};  // throws
  const bool is_scale = options.scale == 0 || (options.scale >= 0.5 && options.scale <= 8);
  if (!is_scale) throw std::invalid_argument("--scale: give a number from 0.5 to 8");
  const bool has_window = wants_window(options);
  if (options.last && !options.session.empty()) {
    throw std::invalid_argument("--last and --session both name a session; give only one");
  }
  if (!has_window && options.runs.empty() && options.session.empty() && !options.last) {
    throw std::invalid_argument("no RUN: give a run's folder or a .slp file, one or more");
  }
  if (!options.screenshot.empty() && !options.screenshot.ends_with(".png")) {
    throw std::invalid_argument(
        fmt::format("--screenshot {}: end its name in .png", options.screenshot));
  }
  if (!options.figure.empty()) require_figure_name(options.figure);
  if (!options.page.empty() && !options.page.ends_with(".html")) {
    throw std::invalid_argument(fmt::format("--export {}: end its name in .html", options.page));
  }
  for (const std::string& id : options.commands) {
    const Command* const command = find_command(id);
    const bool runs_levers = command != nullptr && command->request == Request::run_levers;
    if (command == nullptr || (command->apply == nullptr && !runs_levers)) {
      throw std::invalid_argument(
          fmt::format("--do {}: not a command that changes the view; see --help", id));
    }
  }
}

/// Returns the path of a file that the program keeps for itself; empty if the environment names no
/// home.
std::string kept_file(const std::string& name) {
  const std::string folder = default_cache_folder();
  return folder.empty() ? "" : folder + "/" + name;
}

/// Returns the file of the last session.
std::string autosave_file() { return kept_file("last.session.json"); }

Range parse_range(const std::string& text) {
  const char* const end = text.data() + text.size();
  Range range;
  const auto [colon, first] = std::from_chars(text.data(), end, range.begin);
  const bool has_colon = first == std::errc{} && colon != end && *colon == ':';
  const auto [stop, second] = std::from_chars(has_colon ? colon + 1 : end, end, range.end);
  if (!has_colon || second != std::errc{} || stop != end || !(range.begin < range.end)) {
    throw std::invalid_argument(
        fmt::format("--range {}: not a range; give BEGIN:END in units of the x axis, such as "
                    "3:5 for steps 3 and 4",
                    text));
  }
  return range;
}

ViewState first_state(const Options& options) {
  const std::string session = options.last ? autosave_file() : options.session;
  if (options.last && !std::filesystem::exists(session)) {
    throw std::invalid_argument("--last: no window has saved a session yet; give RUN or --session");
  }
  ViewState state = session.empty() ? ViewState{} : load_session(session);
  state.device = options.device;
  if (options.clock) state.clock = *options.clock;
  state.files.insert(state.files.end(), options.runs.begin(), options.runs.end());
  return state;
}

void show_range(Presenter& presenter, const Range& range) {
  const Range all = presenter.facts().extent;
  if (range.end <= all.begin || range.begin >= all.end) {
    throw std::invalid_argument(fmt::format(
        "--range {:g}:{:g}: outside the x axis; give a part of "
        "{:g}:{:g} ({})",
        range.begin, range.end, all.begin, all.end, axis_title(presenter.state().alignment)));
  }
  presenter.show(range);
}

void choose_baseline(Presenter& presenter, const std::string& name) {
  if (name.empty()) return;
  std::vector<std::string> names;
  for (const Run& run : presenter.runs()) names.push_back(run.name);
  const auto at = std::ranges::find(names, name);
  if (at == names.end()) {
    throw std::invalid_argument(
        fmt::format("--baseline {}: not one of {}", name, fmt::join(names, ", ")));
  }
  ViewState state = presenter.state();
  state.baseline = static_cast<size_t>(at - names.begin());
  state.focus = state.baseline;
  presenter.restore(state);
}

void write_report(Presenter& presenter, const std::string& path,
                  const std::optional<Range>& range) {
  presenter.facts();  // reads and plans what the commands asked for
  const ViewState& state = presenter.state();
  const auto part = range ? std::optional<ReportRange>({state.alignment, *range}) : std::nullopt;
  const std::string text = comparison_report(presenter.runs(), state.baseline, report_format(path),
                                             part, state.earlier_baselines);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  if (!file.flush()) {
    throw std::runtime_error(
        fmt::format("{}: cannot write this report; choose a folder that can be written", path));
  }
}

/// Writes what is shown as a page, under another name until it is complete.
void write_page_file(Presenter& presenter, const std::string& path) {
  presenter.facts();  // reads and plans what the commands asked for
  write_whole(path, [&](const std::string& unfinished) {
    std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
    if (file) write_page(presenter.runs(), presenter.state(), file);
    if (!file.flush()) {
      throw std::runtime_error(
          fmt::format("{}: cannot write this page; choose a folder that can be written", path));
    }
  });
}

/// Refuses to open an empty window, before a display is asked for.
void check_any_exists(const std::vector<std::string>& files) {
  const auto exists = [](const std::string& path) {
    std::error_code unreadable;
    return std::filesystem::exists(path, unreadable);
  };
  if (files.empty() || std::ranges::any_of(files, exists)) return;
  throw std::invalid_argument(missing_text(files.front()));
}

WindowOptions window_options(const Options& options, const Size& size, Theme theme) {
  WindowOptions window;
  window.width = size.width;
  window.height = size.height;
  window.scale = options.scale;
  window.theme = theme;
  window.font_file = options.font;
  window.editor = options.editor;
  if (!options.session.empty()) window.session_file = options.session;
  window.autosave_file = autosave_file();
  window.recent_file = kept_file("recent.txt");
  return window;
}

/// Prints the messages behind the first `said` to stderr. Returns 1 if there are any, since not
/// everything could be opened, or run.
int say_messages(const Presenter& presenter, size_t said = 0) {
  const std::vector<std::string>& messages = presenter.messages();
  for (size_t i = said; i < messages.size(); ++i) {
    fmt::print(stderr, "shardlens view: {}\n", messages[i]);
  }
  return messages.size() > said ? 1 : 0;
}

}  // namespace

int run_viewer(const std::vector<std::string>& arguments) {
  const Options options = parse_options(arguments);
  if (!options.text.empty()) return fmt::print("{}", options.text), 0;
  require_consistent(options);
  const Size size = parse_size(options.size.empty() ? kWindowSize : options.size);
  const auto range =
      options.range.empty() ? std::nullopt : std::optional(parse_range(options.range));
  if (!options.report.empty()) report_format(options.report);
  const bool has_window = wants_window(options);
  const ViewState state = first_state(options);
  int exit_code = 0;
  size_t said = 0;
  const auto open = [&](const ReadProgress& meanwhile) {
    auto presenter =
        std::make_unique<Presenter>(state, options.caches ? default_cache_folder() : "", meanwhile);
    exit_code = say_messages(*presenter);
    said = presenter->messages().size();
    if (has_window) presenter->set_lever_patience(std::chrono::milliseconds(0));
    if (!has_window && presenter->runs().empty()) return presenter;
    choose_baseline(*presenter, options.baseline);
    if (options.session.empty() && !options.last) presenter->choose_view();
    for (const std::string& id : options.commands) presenter->perform(*find_command(id));
    if (range) show_range(*presenter, *range);
    return presenter;
  };
  if (has_window) {
    check_any_exists(state.files);
    show_window(open, window_options(options, size, state.theme));
    return exit_code;
  }
  const auto presenter = open({});
  if (presenter->runs().empty()) return 1;
  presenter->facts();  // runs what the commands asked for
  exit_code |= say_messages(*presenter, said);
  if (!options.report.empty()) write_report(*presenter, options.report, range);
  if (!options.page.empty()) write_page_file(*presenter, options.page);
  if (!options.figure.empty()) {
    const Size points = parse_size(options.size.empty() ? kFigureSize : options.size);
    write_figure(*presenter, {points.width, points.height, options.scale, options.font},
                 options.figure);
  }
  if (!options.screenshot.empty()) {
    const double scale = options.scale > 0 ? options.scale : 1;
    write_png(screenshot(*presenter, {size.width, size.height, scale, options.font}),
              options.screenshot);
  }
  return exit_code;
}

}  // namespace shardlens::viewer
