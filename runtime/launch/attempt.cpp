#include "runtime/launch/attempt.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>

#include "base/durable_files.h"
#include "base/input_file.h"
#include "base/limits.h"
#include "base/strict_json.h"
#include "profiler/recorder/recorder.h"
#include "runtime/train/progress.h"
#include "runtime/train/trainer.h"

namespace shardlens::runtime {

namespace {

/// Returns the last step in the file of metrics.
std::optional<int64_t> last_logged_step(const std::filesystem::path& metrics) {
  std::optional<int64_t> last;
  std::istringstream lines(read_file(metrics, kRecord.bytes).text);
  for (std::string line; std::getline(lines, line);) {
    const auto json = find_json(line);
    const auto step = json ? whole_in(*json, "step") : std::nullopt;
    if (step) last = step;
  }
  return last;
}

/// Records the end of the last attempt if all its processes ended without doing so: they were
/// killed, or their hosts are gone.
void tell_silent_end(const RunDirectory& directory, EventLog& events) {
  const std::vector<RunEvent> told = read_events(directory.events());
  if (told.empty() || has_ended(told, told.back().generation)) return;
  const auto step = last_logged_step(directory.metrics());
  events.add_end({.generation = told.back().generation,
                  .kind = std::string(to_string(Fault::lost)),
                  .step = step,
                  .text = fmt::format("all of the attempt's processes ended without a word; {}",
                                      step ? fmt::format("the last logged step is {}", *step)
                                           : "no step was logged")});
}

}  // namespace

Resumption begin_attempt(Job& job, const RunDirectory& directory, EventLog& events, bool goes_on,
                         VerificationTime verified) {
  job.attempt.fence = directory.begin_attempt();
  const int64_t generation = job.attempt.fence.generation();
  // This process has seen how the attempts before later ones ended.
  if (goes_on && job.attempt.restarts == 0) tell_silent_end(directory, events);
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
      print_error(fmt::format("shardlens train: warning: {} was not moved: {}",
                              recordings.file(rank).string(), error.what()));
    }
  }
}

void show_memory(const Job& job, const RunDirectory& directory, int rank) {
  const std::filesystem::path local = recordings_of(job, directory).file(rank);
  const bool stays = std::filesystem::exists(local);
  const std::string screen =
      profiler::out_of_memory_screen((stays ? local : directory.profile(rank)).string());
  if (!screen.empty()) print_error("\n" + screen.substr(0, screen.find_last_not_of('\n') + 1));
}

RunEvent end_of(const Job& job, const Outcome& outcome) {
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
  return event;
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
