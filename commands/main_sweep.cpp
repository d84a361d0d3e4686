#include <fmt/format.h>

#include <algorithm>

#include "base/process/program.h"
#include "commands/recording_replay.h"
#include "commands/step_times.h"
#include "profiler/record/record_verdict.h"
#include "profiler/record/search/solve.h"

namespace {

using namespace shardlens;
using namespace shardlens::profiler;

bool is_known(const VariantResult& result) {
  return result.outcome == VariantOutcome::measured ||
         result.outcome == VariantOutcome::out_of_memory;
}

int exit_code_of(const RankedSettings& choices) {
  if (!choices.front().empty()) return 0;
  const bool is_unknown =
      choices.left_out > 0 || std::ranges::none_of(choices.runs, is_known, &ChosenRun::result);
  return is_unknown ? kNotRecorded : kDoesNotFit;
}

int run_choices(const SweepOptions& options) {
  const ChoiceOptions wanted{
      .record = options.record, .choices = options.choices, .by_time = options.by_time};
  VariantRunner runner("sweep", options.record, replays_of, times_with(options.record));
  const RankedSettings choices =
      choose(wanted, [&](const auto& all, const auto& names) { return runner.run(all, names); });
  print_output(options.prints_json ? choices_json(wanted, choices) : choices_text(wanted, choices));
  return exit_code_of(choices);
}

int run(const SweepOptions& options) {
  if (!options.choices.empty()) return run_choices(options);
  VariantRunner runner("sweep", options.record, replays_of, times_with(options.record));
  const std::vector<SweptRun> runs = sweep(options, runner);
  print_output(options.prints_json ? sweep_json(options, runs) : sweep_text(options, runs));
  const bool is_whole =
      !runner.was_interrupted() && std::ranges::all_of(runs, is_known, &SweptRun::result);
  return is_whole ? 0 : kNotRecorded;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("shardlens sweep", [&] {
    const SweepOptions options = parse_sweep_options({argv + 1, argv + argc});
    if (options.help) return fmt::print("{}", sweep_help()), 0;
    return run(options);
  });
}
