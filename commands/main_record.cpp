#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "base/process/installation.h"
#include "base/process/program.h"
#include "commands/recording_replay.h"
#include "commands/step_times.h"
#include "profiler/record/accounts.h"
#include "profiler/record/judged_rank.h"
#include "profiler/record/next_steps.h"
#include "profiler/record/python_program.h"
#include "profiler/record/rank_runs.h"
#include "profiler/record/record_options.h"
#include "profiler/record/record_verdict.h"
#include "profiler/record/recorded_run.h"
#include "profiler/record/recorder_files.h"
#include "profiler/record/worker_runs.h"
#include "profiler/report/report.h"

namespace {

using namespace shardlens;
using namespace shardlens::profiler;

std::vector<RecordVerdict> verdicts_of(const std::vector<JudgedRank>& ranks) {
  std::vector<RecordVerdict> verdicts;
  for (const JudgedRank& rank : ranks) verdicts.push_back(rank.verdict);
  return verdicts;
}

std::vector<profiler::RankReport> reports_of(const std::vector<JudgedRank>& ranks) {
  std::vector<profiler::RankReport> reports;
  for (const JudgedRank& rank : ranks) reports.push_back(rank.report);
  return reports;
}

std::vector<std::string> paths_of(const std::vector<JudgedRank>& ranks) {
  std::vector<std::string> paths;
  for (const JudgedRank& rank : ranks) paths.push_back(rank.report.source);
  return paths;
}

std::string verdicts_text(const std::vector<JudgedRank>& ranks) {
  std::string text;
  for (const JudgedRank& rank : ranks) text += verdict_text(rank);
  return text;
}

/// Returns the line of a process that ran out of memory and has no recording; nothing if there is
/// no such process, or if the verdict of a recording says so already.
std::string unrecorded_text(const RecordedRun& run, const std::vector<RecordVerdict>& verdicts) {
  const AccountEntry* const told = run.accounts.first_entry("out_of_memory");
  if (told == nullptr || std::ranges::any_of(verdicts, &RecordVerdict::is_out_of_memory)) return {};
  return fmt::format("does not fit: process {} ran out of memory: {}\n", told->process, told->text);
}

/// Returns how long a step takes, of all ranks together, if the work of the GPU was traced; or why
/// that cannot be said.
std::string step_time_text(const RecordOptions& options,
                           const std::vector<std::string>& recordings) {
  if (!options.traces_work) return {};
  const TimeRequest request{.calibration = options.calibration};
  try {
    return "\n" + (recordings.size() == 1 ? step_time_of(recordings.front(), request)
                                          : world_time_of(recordings, request));
  } catch (const std::exception& error) {
    return fmt::format("\nstep time: {}\n", error.what());
  }
}

/// Prints what was recorded, verdicts first, and returns the verdicts.
std::vector<RecordVerdict> report_all(const RecordOptions& options, const RecordedRun& run) {
  const std::vector<JudgedRank> ranks = judge(options, run, replays_of);
  const std::vector<RecordVerdict> verdicts = verdicts_of(ranks);
  const std::string next = next_steps(options.out, ranks);
  print_output("\n" + unrecorded_text(run, verdicts) + verdicts_text(ranks) + "\n" +
               profiler::report_text(reports_of(ranks)) + step_time_text(options, paths_of(ranks)) +
               next);
  return verdicts;
}

void say_why_nothing(const RecordOptions& options, const RecordedRun& run) {
  const std::string why =
      why_nothing(run.accounts, run.end, options.command, options.is_attached());
  const std::string code = run.end.exit_code == 0
                               ? ""
                               : fmt::format("; the command's exit code is {}", run.end.exit_code);
  fmt::print(stderr, "shardlens record: nothing was recorded: {}{}\n", why, code);
}

void say_end(const CommandEnd& end) {
  if (!end.how.empty()) fmt::print(stderr, "shardlens record: {}\n", end.how);
  if (end.exit_code != 0) {
    fmt::print(stderr, "shardlens record: the command's exit code is {}\n", end.exit_code);
  }
}

int record_one(const RecordOptions& options, const PythonProgram& program,
               const RecordFiles& files) {
  const RecordedRun run = RecordedRuns(options, program, files).run();
  keep_run_of_worker(options, run);
  std::vector<RecordVerdict> verdicts;
  if (run.recordings.empty()) {
    say_why_nothing(options, run);
    print_output(unrecorded_text(run, verdicts));
  } else {
    say_end(run.end);
    verdicts = report_all(options, run);
  }
  return exit_code_of(run.end, verdicts, run.accounts.first_entry("out_of_memory") != nullptr,
                      options.may_grow);
}

/// Prints the verdicts of all ranks that were run, and the report of the fullest rank.
int record_ranks(const RecordOptions& options, const PythonProgram& program,
                 const RecordFiles& files) {
  const RankRuns runs = run_ranks(options, program, files, replays_of);
  const JudgedRank* const fullest = runs.fullest();
  if (fullest == nullptr) return runs.exit_code();
  const std::string next = next_steps(options.out, runs.ranks);
  print_output("\n" + verdicts_text(runs.ranks) + "\n" + ranks_text(runs) + "\n" +
               profiler::report_text({fullest->report}) +
               step_time_text(options, paths_of(runs.ranks)) + next);
  return runs.exit_code();
}

int record(const RecordOptions& options) {
  if (!options.calibration.empty()) times_with(options);  // throws now, not after the program
  const PythonProgram program = find_python(options.command);
  const auto record = support_folder("record");
  const RecordFiles files = recorder_for(
      program, record, options.is_attached() ? CudaProvider::gpu : CudaProvider::null_device);
  if (files.doubt) fmt::print(stderr, "shardlens record: {}\n", *files.doubt);
  return options.ranks ? record_ranks(options, program, files)
                       : record_one(options, program, files);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("shardlens record", [&] {
    const RecordOptions options = parse_record_options({argv + 1, argv + argc});
    if (options.help) return fmt::print("{}", record_help()), 0;
    if (options.lists_levers) return fmt::print("{}", lever_list()), 0;
    return record(options);
  });
}
