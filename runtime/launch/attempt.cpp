#include "runtime/launch/attempt.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>

#include "base/durable_files.h"
#include "profiler/recorder/recorder.h"
#include "runtime/train/trainer.h"

namespace shardlens::runtime {

Resumption begin_attempt(Job& job, const RunDirectory& directory, EventLog& events, bool goes_on,
                         VerificationTime verified) {
  job.attempt.fence = directory.begin_attempt();
  const int64_t generation = job.attempt.fence.generation();
  if (!goes_on) {
    events.add({.generation = generation,
                .kind = "started",
                .step = 0,
                .text = fmt::format("{} ranks", job.ranks.size())});
    return {};
  }
  const Resumption resumption = resume(job, directory, verified);
  for (const std::string& line : resumption.damaged) {
    events.add({.generation = generation, .kind = "checkpoint_damaged", .text = line});
  }
  events.add({.generation = generation,
              .kind = job.resume ? "resumed" : "started",
              .step = resumption.step,
              .text = job.resume ? job.resume->string() : "without a checkpoint"});
  return resumption;
}

LocalRecordings recordings_of(const Job& job, const RunDirectory& directory) {
  return {job.config.profile_dir, directory, job.attempt.fence};
}

void collect_recordings(const Job& job, const RunDirectory& directory,
                        const std::vector<int>& ranks) {
  const LocalRecordings recordings = recordings_of(job, directory);
  for (const int rank : ranks) {
    try {
      recordings.collect(rank);
    } catch (const std::runtime_error& error) {
      fmt::print(stderr, "shardlens train: warning: {} was not moved: {}\n",
                 recordings.file(rank).string(), error.what());
    }
  }
}

void show_memory(const Job& job, const RunDirectory& directory, int rank) {
  const std::filesystem::path local = recordings_of(job, directory).file(rank);
  const bool stays = std::filesystem::exists(local);
  const std::string screen =
      profiler::out_of_memory_screen((stays ? local : directory.profile(rank)).string());
  if (!screen.empty()) fmt::print(stderr, "\n{}", screen);
}

void tell_end(const Job& job, EventLog& events, const Outcome& outcome) {
  RunEvent event{.generation = job.attempt.fence.generation(), .kind = "finished", .text = ""};
  event.step = outcome.step;
  if (outcome.end == Outcome::End::preempted) {
    event.kind = "preempted";
    event.text = outcome.signal == 0 ? "" : fmt::format("by signal {}", outcome.signal);
  } else if (outcome.end == Outcome::End::failed) {
    event.kind = to_string(outcome.fault);
    event.text = outcome.reason;
    if (outcome.rank >= 0) event.rank = outcome.rank;
  }
  events.add(event);
}

void write_unfinished(const Job& job, const RunDirectory& directory, Outcome& outcome) {
  if (outcome.ok()) return;
  const UnfinishedRun end{
      .reason = outcome.reason, .steps = outcome.step, .restarts = job.attempt.restarts};
  try {
    write_file(directory.result(),
               outcome.end == Outcome::End::preempted ? preempted_json(end) : failure_json(end));
  } catch (const Failure& error) {
    if (outcome.reason.find(error.what()) == std::string::npos) {
      outcome.reason += fmt::format("; {}", error.what());
    }
  }
}

}  // namespace shardlens::runtime
