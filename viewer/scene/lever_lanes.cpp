#include "viewer/scene/lever_lanes.h"

#include <algorithm>
#include <utility>

#include "base/process/installation.h"

namespace shardlens::viewer {

namespace {

/// Returns the recording of the panel; empty if it is closed, or of a run that can be planned.
std::string recording_of(const ViewState& state) {
  const auto& what_if = state.what_if;
  const bool is_program = what_if && what_if_kind_of(*what_if) == WhatIfKind::recording;
  return is_program ? what_if->recording : "";
}

int64_t seconds_of(const ProgramLevers& levers) {
  const auto row = std::ranges::find(levers.rows, LeverState::running, &LeverRow::state);
  return row == levers.rows.end() ? 0 : static_cast<int64_t>(row->seconds);
}

}  // namespace

LeverLanes::LeverLanes() : record_((own_program().parent_path() / "shardlens-record").string()) {}

void LeverLanes::reset(std::string cache_folder, std::optional<profiler::Space> space) {
  cache_folder_ = std::move(cache_folder);
  space_ = space;
  if (runs_) runs_->show(space);
}

bool LeverLanes::update(const ViewState& state, std::chrono::milliseconds most) {
  const std::string recording = recording_of(state);
  if (recording.empty() && !runs_) return false;
  if (!runs_) runs_ = std::make_unique<LeverRuns>(record_, cache_folder_, space_);
  const bool is_other = recording != recording_;
  if (is_other && !recording.empty()) runs_->look_at(recording);
  recording_ = recording;
  if (most.count() > 0) runs_->wait(most);
  const uint64_t now = runs_->version();
  if (now == seen_ && !is_other && !runs_->is_busy()) return false;
  auto levers = recording.empty() ? std::nullopt : runs_->levers(recording);
  const int64_t seconds = levers ? seconds_of(*levers) : 0;
  const bool has_changed = now != seen_ || is_other || seconds != seconds_;
  seen_ = now;
  seconds_ = seconds;
  if (!has_changed) return false;
  levers_ = std::move(levers);
  ++version_;
  return true;
}

std::vector<Run> LeverLanes::take_runs() { return runs_ ? runs_->take_runs() : std::vector<Run>(); }

std::vector<std::string> LeverLanes::take_messages() {
  return runs_ ? runs_->take_messages() : std::vector<std::string>();
}

void LeverLanes::run(const std::vector<profiler::Lever>& levers) {
  if (runs_ && !recording_.empty()) runs_->run(recording_, levers);
}

void LeverLanes::stop(const std::vector<profiler::Lever>& levers) {
  if (runs_ && !recording_.empty()) runs_->stop(recording_, levers);
}

void LeverLanes::stop_all() {
  if (runs_) runs_->stop_all();
}

void LeverLanes::open(const std::string& folder) {
  if (runs_) runs_->open(folder);
}

}  // namespace shardlens::viewer
