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

bool is_known(const SweptRun& run) {
  return run.result.outcome == VariantOutcome::measured ||
         run.result.outcome == VariantOutcome::out_of_memory;
}

int run(const SweepOptions& options) {
  VariantRunner runner("sweep", options.record, replays_of, times_with(options.record));
  const std::vector<SweptRun> runs = sweep(options, runner);
  print_output(options.prints_json ? sweep_json(options, runs) : sweep_text(options, runs));
  const bool is_whole = !runner.was_interrupted() && std::ranges::all_of(runs, is_known);
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
