#include "viewer/scene/plan_lanes.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace shardlens::viewer {

namespace {

std::vector<Run> take_from(std::vector<Run>& runs, size_t first) {
  const auto begin = runs.begin() + static_cast<std::ptrdiff_t>(std::min(first, runs.size()));
  std::vector<Run> taken(std::make_move_iterator(begin), std::make_move_iterator(runs.end()));
  runs.erase(begin, runs.end());
  return taken;
}

void append(std::vector<Run>& runs, std::vector<Run> more) {
  std::ranges::move(more, std::back_inserter(runs));
}

}  // namespace

void PlanLanes::reset(const std::vector<Run>& runs, std::optional<profiler::Space> space) {
  if (space != space_) worker_.reset();
  space_ = space;
  files_ = runs.size();
  joined_ = false;
  kept_.clear();
  refusals_.clear();
  asked_.reset();
  answered_.reset();
  news_ = {};
}

size_t PlanLanes::add_file(Run run, std::vector<Run>& runs) {
  runs.insert(runs.begin() + static_cast<std::ptrdiff_t>(files_), std::move(run));
  if (news_.run) ++*news_.run;
  return files_++;
}

bool PlanLanes::update(const ViewState& state, std::vector<Run>& runs,
                       std::chrono::milliseconds most) {
  const PlanNews before = news_;
  const std::optional<PlanRequest> answered_before = answered_;
  bool has_changed = join(state.panels.plans, runs);
  has_changed |= keep(state.plans, runs);
  follow(state, runs, most);
  return has_changed || news_ != before || answered_ != answered_before;
}

bool PlanLanes::join(bool wanted, std::vector<Run>& runs) {
  if (joined_ == wanted) return false;
  std::vector<Run> planned = take_from(runs, files_);
  wanted ? join_plans(runs) : separate_plans(runs);
  joined_ = wanted;
  const size_t files_before = std::exchange(files_, runs.size());
  if (news_.run) *news_.run += files_ - files_before;
  append(runs, std::move(planned));
  return true;
}

bool PlanLanes::keep(const std::vector<PlanRequest>& wanted, std::vector<Run>& runs) {
  if (kept_ == wanted) return false;
  std::vector<Run> before = take_from(runs, files_);
  refusals_.clear();
  for (const PlanRequest& request : wanted) {
    const auto same = std::ranges::find_if(before, [&](const Run& run) {
      return !run.ranks.empty() && run.request_name == request.name &&
             run.request_config == request.config;
    });
    if (same != before.end()) {
      runs.push_back(std::move(*same));
      same->ranks.clear();
      continue;
    }
    PlanAnswer answer = answer_of(request, space_);
    if (answer.run) runs.push_back(std::move(*answer.run));
    if (!answer.run) refusals_.push_back(std::move(*answer.refusal));
  }
  kept_ = wanted;
  // The panel's own plan is added again: a kept one may have taken its place.
  asked_.reset();
  answered_.reset();
  news_ = {};
  return true;
}

void PlanLanes::drop_what_if(std::vector<Run>& runs) {
  if (news_.run) runs.erase(runs.begin() + static_cast<std::ptrdiff_t>(*news_.run));
  news_ = {};
  asked_.reset();
  answered_.reset();
}

void PlanLanes::follow(const ViewState& state, std::vector<Run>& runs,
                       std::chrono::milliseconds most) {
  if (!state.what_if || what_if_kind_of(*state.what_if) != WhatIfKind::plan)
    return drop_what_if(runs);
  const PlanRequest request = request_of(*state.what_if);
  if (answered_ == request) return;
  if (!worker_) worker_ = std::make_unique<PlanWorker>(space_);
  if (asked_ != request) {
    worker_->ask(request);
    asked_ = request;
  }
  if (auto answer = worker_->wait(most)) return take(std::move(*answer), runs);
  news_.is_stale = true;
}

void PlanLanes::take(PlanAnswer answer, std::vector<Run>& runs) {
  news_.is_stale = false;
  news_.refusal = std::move(answer.refusal);
  answered_ = answer.request;
  if (!answer.run) return;
  if (news_.run) {
    runs[*news_.run] = std::move(*answer.run);
  } else {
    news_.run = runs.size();
    runs.push_back(std::move(*answer.run));
  }
}

}  // namespace shardlens::viewer
