#include "runtime/execute/executor.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "runtime/execute/null_inspection.h"

namespace shardlens::runtime {

using planner::Action;
using planner::Schedule;

namespace {

/// Returns, by position in the list, true if an action on another stream waits for that action.
std::vector<bool> awaited_in(const Schedule& schedule) {
  const planner::Repetition& repetition = schedule.repetition;
  std::vector<bool> awaited(schedule.actions.size());
  const auto add_waits = [&](int id) {
    for (const int wait : schedule.waits_of(id)) awaited[repetition.index_of(wait)] = true;
  };
  for (int index = 0; index < static_cast<int>(schedule.actions.size()); ++index) {
    const int id = repetition.first_id_of(index);
    add_waits(id);
    const bool comes_again = repetition.times > 1 && repetition.is_in_round(index);
    if (comes_again) add_waits(id + repetition.length());
  }
  return awaited;
}

bool is_beside(planner::Stream stream) {
  return stream != planner::Stream::main && stream != planner::Stream::host;
}

}  // namespace

ExecutorOptions executor_options(const planner::Config& config) {
  return {planner::step_options(config), optimizer_options(config)};
}

Executor::Executor(const models::ModelSpec& spec, RankState& state, Streams& streams,
                   Channels channels, const ExecutorOptions& options)
    : Interpreter(spec, options.units.empty() ? models::build_units(spec) : options.units, options,
                  state.device()),
      spec_(spec),
      state_(state),
      streams_(streams),
      channels_(channels),
      optimizer_(options.optimizer),
      own_loss_(options.loss),
      space_(state.device().is_cuda() ? profiler::Space::device : profiler::Space::host),
      host_(state.device().is_cuda()) {
  hook_weights();
}

void Executor::run(const Schedule& schedule, int64_t step, const BatchLoader& load_batch) {
  step_ = step;
  profiler::Scope scope({});
  scope_ = &scope;
  Interpreter::run(schedule, load_batch);
  while (!issued_.empty()) complete(issued_.back().action);
  host_.join();
  streams_.end();
  if (inspection_ != nullptr) inspection_->end_pass(schedule);
}

bool Executor::begin_pass(bool is_new) {
  if (is_new) awaited_ = awaited_in(schedule());
  issued_.clear();
  streams_.begin(schedule().actions.size());
  // Each recorder knows only the labels that it assigned.
  profiler::Recorder* const active = profiler::Recorder::active();
  return std::exchange(recorder_, active) != active || is_new;
}

uint32_t Executor::label(std::string_view name) {
  return recorder_ == nullptr ? 0 : recorder_->label(name);
}

profiler::Purpose Executor::enter(const Action& action, uint32_t label) {
  const int id = current();
  if (observer_) observer_(id);
  wait_for(id);
  if (inspection_ != nullptr) inspection_->enter(schedule(), step_, id);
  if (recorder_ != nullptr) recorder_->begin_action(id);
  const profiler::Purpose before = scope_->change({planner::category_of(action.kind), label, id});
  if (is_beside(action.stream)) streams_.select(action.stream);
  return before;
}

void Executor::leave(const Action& action, const profiler::Purpose& before) {
  if (is_beside(action.stream)) streams_.select(planner::Stream::main);
  scope_->change(before);
}

void Executor::end_action(int id) {
  if (recorder_ != nullptr) recorder_->end_action(id);
}

void Executor::finish_action(int id) {
  const planner::Stream stream = schedule().action(id).stream;
  if (awaited_[index_of(id)] && stream != planner::Stream::host) {
    streams_.record(index_of(id), stream);
  }
}

void Executor::wait_for(int id) {
  const planner::Stream stream = schedule().action(id).stream;
  for (const int earlier : schedule().waits_of(id)) {
    check(earlier >= 0 && earlier < id, "an action waits for one that has not begun");
    complete(earlier);
    if (schedule().action(earlier).stream == planner::Stream::host) {
      host_.wait(earlier);
    } else if (stream != planner::Stream::host) {
      streams_.wait(stream, index_of(earlier));
    }
  }
}

void Executor::do_on_stream(const Action& action, HostQueue::Work work) {
  if (action.stream != planner::Stream::host) return work();
  const profiler::Purpose purpose{planner::category_of(action.kind), label_of(action), current()};
  std::vector<int> events;
  for (const int earlier : schedule().waits_of(current())) events.push_back(index_of(earlier));
  host_.post(current(), [this, events = std::move(events), purpose, work = std::move(work)] {
    for (const int event : events) streams_.synchronize(event);
    const profiler::Scope scope(purpose);
    work();
  });
}

/// Waits for the action and for earlier ones, because a communicator's tickets must be waited for
/// in the order of issue.
void Executor::complete(int id) {
  const auto found = std::find_if(issued_.begin(), issued_.end(),
                                  [&](const IssuedCollective& one) { return one.action == id; });
  if (found == issued_.end()) return;
  Communicator* const communicator = found->communicator;
  std::erase_if(issued_, [&](const IssuedCollective& one) {
    if (one.communicator != communicator || one.action > id) return false;
    communicator->wait(one.ticket);
    return true;
  });
}

}  // namespace shardlens::runtime
