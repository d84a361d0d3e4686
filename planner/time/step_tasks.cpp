#include "planner/time/step_tasks.h"

#include "planner/time/tasks/task_builder.h"

namespace shardlens::planner {

namespace {

using profiler::WorkTrace;

constexpr int kRepeats = 4;  // of a round, until it has settled

}  // namespace

std::vector<Task> simulated_tasks(const StepTasks& step) {
  std::vector<Task> tasks;
  for (const CostedTask& costed : step.tasks) tasks.push_back(costed.task);
  return tasks;
}

StepTasks step_tasks(const WorkTrace& trace, const Gpu& gpu, const StepTimeOptions& options) {
  StepTasks step{.rounds = settled_rounds(trace)};
  const std::vector<TraceRound>& rounds = step.rounds.rounds;
  if (rounds.empty()) return step;
  TaskBuilder builder(trace, gpu, options);
  if (step.rounds.are_alike) {
    const TraceRound& before = rounds[rounds.size() - 2];
    for (int i = 0; i < kRepeats; ++i) builder.add(rounds.back(), &before, step.rounds.host_ns);
  } else {
    const TraceRound* before = nullptr;
    for (const TraceRound& round : rounds) {
      builder.add(round, before, {});
      before = &round;
    }
  }
  step.tasks = builder.take_tasks();
  step.begins = builder.begins();
  // The last of rounds that repeat has settled; if none repeat, all count.
  step.timed = step.rounds.are_alike ? 1 : step.begins.size();
  return step;
}

}  // namespace shardlens::planner
