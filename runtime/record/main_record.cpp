#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "profiler/program.h"
#include "profiler/recording_report.h"
#include "profiler/report/report.h"
#include "runtime/installation.h"
#include "runtime/record/accounts.h"
#include "runtime/record/next_steps.h"
#include "runtime/record/outside.h"
#include "runtime/record/python_program.h"
#include "runtime/record/record_options.h"
#include "runtime/record/record_verdict.h"
#include "runtime/record/recorded_run.h"
#include "runtime/record/recorder_files.h"

namespace {

using namespace shardlens;
using namespace shardlens::runtime;

/// Returns a verdict, all that speaks against it, and how far PyTorch's own counters agree.
std::string verdict_text(const std::string& path, const RecordVerdict& verdict,
                         const std::optional<Comparison>& comparison, const Outside& outside) {
  std::string text = fmt::format("{}: {}\n", path, verdict.line);
  if (comparison) {
    text += fmt::format("  {}{}\n", comparison->is_equal ? "" : "in doubt: ", comparison->line);
  }
  for (const std::string& doubt : verdict.doubts) text += fmt::format("  in doubt: {}\n", doubt);
  if (outside.estimate.empty()) return text;
  return text + fmt::format("  estimated, beside PyTorch: {}\n", outside.estimate);
}

/// Returns the line of a process that has no recording and ran out of memory; nothing if there is
/// none, or the verdict of a recording tells of it.
std::string unrecorded_text(const RecordedRun& run, const std::vector<RecordVerdict>& verdicts) {
  const Told* const told = run.accounts.first("out_of_memory");
  if (told == nullptr || std::ranges::any_of(verdicts, &RecordVerdict::is_out_of_memory)) return {};
  return fmt::format("does not fit: process {} ran out of memory: {}\n", told->process, told->text);
}

/// Prints what was recorded, the verdicts first, and returns these.
std::vector<RecordVerdict> report_all(const RecordOptions& options, const RecordedRun& run) {
  const std::string failure = failure_text(run.accounts, run.end);
  std::vector<RecordVerdict> verdicts;
  std::vector<profiler::RankReport> reports;
  std::string lines;
  for (const auto& path : run.recordings) {
    profiler::RankReport report = profiler::report_of(path.string());
    report.source = path.string();
    const RecordFacts facts = read_record_facts(path.string());
    const Outside outside = outside_of(options, report, facts);
    verdicts.push_back(verdict_of(report, facts, outside.bytes, failure));
    const auto comparison = compare_counters(report, facts);
    if (comparison) keep_comparison(path.string(), *comparison);
    lines += verdict_text(path.string(), verdicts.back(), comparison, outside);
    reports.push_back(std::move(report));
  }
  const std::string next = next_steps(options.out, reports, verdicts);
  profiler::print_output("\n" + unrecorded_text(run, verdicts) + lines + "\n" +
                         profiler::report_text(std::move(reports)) + next);
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

int record(const RecordOptions& options) {
  const PythonProgram program = find_python(options.command);
  const auto record = support_folder("record");
  const RecordFiles files =
      recorder_for(program, record, options.is_attached() ? Answers::gpu : Answers::null_device);
  if (!files.doubt.empty()) fmt::print(stderr, "shardlens record: {}\n", files.doubt);
  const RecordedRun run = run_recorded(options, program, files);
  std::vector<RecordVerdict> verdicts;
  if (run.recordings.empty()) {
    say_why_nothing(options, run);
    profiler::print_output(unrecorded_text(run, verdicts));
  } else {
    say_end(run.end);
    verdicts = report_all(options, run);
  }
  return exit_code_of(run.end, verdicts, run.accounts.first("out_of_memory") != nullptr);
}

}  // namespace

int main(int argc, char** argv) {
  return profiler::run_program("shardlens record", [&] {
    const RecordOptions options = parse_record_options({argv + 1, argv + argc});
    if (options.help) return fmt::print("{}", record_help()), 0;
    return record(options);
  });
}
