// The user's acts on levers in the what-if panel: they are marked, run and stopped, and what was
// recorded with them comes in as a lane.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "viewer/scene/presenter.h"

namespace shardlens::viewer {

namespace {

namespace fs = std::filesystem;

/// Returns the name, with a number if another run has it.
std::string free_name(const std::vector<Run>& runs, const std::string& name) {
  const auto is_taken = [&](const std::string& wanted) {
    return std::ranges::find(runs, wanted, &Run::name) != runs.end();
  };
  std::string free = name;
  for (int i = 2; is_taken(free); ++i) free = fmt::format("{} ({})", name, i);
  return free;
}

/// True if the run will be opened again with a folder of runs that is open.
bool is_in_open_folder(const std::vector<std::string>& files, const std::string& path) {
  const fs::path folder = fs::path(path).lexically_normal().parent_path();
  return std::ranges::any_of(files, [&](const std::string& file) {
    const fs::path clean = fs::path(file).lexically_normal();
    return (clean.has_filename() ? clean : clean.parent_path()) == folder;
  });
}

void make_room(size_t& index, size_t at) {
  if (index >= at) ++index;
}

}  // namespace

bool Presenter::update_levers(std::chrono::milliseconds most) {
  const bool has_changed = lever_lanes_.update(state_, most);
  std::vector<Run> came = lever_lanes_.take_runs();
  for (Run& run : came) add_run(std::move(run));
  const std::vector<std::string> failures = lever_lanes_.take_messages();
  for (const std::string& failure : failures) {
    opened_.messages.push_back(failure);
    messages_.push_back(failure);
    ++generation_;
  }
  return has_changed || !came.empty() || !failures.empty();
}

bool Presenter::follow_levers() { return update_levers(std::chrono::milliseconds(0)); }

/// Adds a run to the open ones, or replaces it if it was recorded again.
void Presenter::add_run(Run run) {
  ++generation_;
  const auto same = std::ranges::find(opened_.runs, run.path, &Run::path);
  if (same != opened_.runs.end()) {
    run.name = same->name;
    *same = std::move(run);
    return;
  }
  std::erase(state_.lanes.closed, run.path);
  opened_without_ = state_.lanes.closed;
  if (!is_in_open_folder(state_.files, run.path)) state_.files.push_back(run.path);
  run.name = free_name(opened_.runs, run.name);
  const size_t at = plan_lanes_.add_file(std::move(run), opened_.runs);
  make_room(state_.focus, at);
  make_room(state_.baseline, at);
  for (size_t& baseline : state_.earlier_baselines) make_room(baseline, at);
  if (state_.pick) make_room(state_.pick->run, at);
}

/// Returns the panel's rows, as facts name them.
std::vector<std::string> Presenter::lever_names() const {
  std::vector<std::string> names;
  if (lever_lanes_.levers() == nullptr) return names;
  for (const LeverRow& row : lever_lanes_.levers()->rows) {
    names.push_back(profiler::levers_text(row.levers));
  }
  return names;
}

/// Shows what was recorded with these levers, or else records it.
void Presenter::run_or_open(const std::vector<profiler::Lever>& levers) {
  const ProgramLevers* const all = lever_lanes_.levers();
  const LeverRow* const row = all == nullptr ? nullptr : all->find(levers);
  const LeverState state = row == nullptr ? LeverState::unknown : row->state;
  const bool is_recorded = state == LeverState::measured || state == LeverState::full;
  if (is_recorded && !row->folder.empty()) return lever_lanes_.open(row->folder);
  const bool is_to_run =
      state == LeverState::unknown || state == LeverState::failed || state == LeverState::full;
  if (!is_to_run || all == nullptr || all->obstacle) return;
  lever_lanes_.run(row == nullptr ? levers : row->levers);
}

/// Runs the marked levers together, or the chosen row.
Request Presenter::run_levers() {
  refresh();
  // A key may come before the recording has been read.
  if (lever_lanes_.levers() == nullptr) update_levers(std::chrono::milliseconds(300));
  const ProgramLevers* const all = lever_lanes_.levers();
  if (!state_.what_if || all == nullptr || all->rows.empty()) return Request::none;
  std::vector<profiler::Lever> wanted;
  for (const std::string& marked : state_.what_if->levers) {
    wanted.push_back(profiler::parse_levers(marked).front());
  }
  const size_t row = std::min(state_.what_if->lever_row, all->rows.size() - 1);
  run_or_open(wanted.empty() ? all->rows[row].levers : wanted);
  update_levers(std::chrono::milliseconds(0));
  return Request::none;
}

/// Chooses the row that was pressed, marks it, or does what stands at its right.
void Presenter::press_lever(const Area& area) {
  const ProgramLevers* const all = lever_lanes_.levers();
  if (!state_.what_if || all == nullptr || area.index >= all->rows.size()) return;
  ViewState next = state_;
  next.what_if->lever_row = area.index;
  if (area.kind == Area::Kind::lever_mark) mark_lever(*next.what_if, lever_names());
  change(next);
  if (area.kind != Area::Kind::lever_act) return;
  const LeverRow row = all->rows[area.index];
  const bool is_under_way = row.state == LeverState::waiting || row.state == LeverState::running;
  is_under_way ? lever_lanes_.stop(row.levers) : run_or_open(row.levers);
  update_levers(std::chrono::milliseconds(0));
}

}  // namespace shardlens::viewer
