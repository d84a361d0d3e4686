#include <fmt/format.h>

#include "base/process/program.h"
#include "commands/recording_replay.h"
#include "commands/step_times.h"
#include "profiler/record/record_verdict.h"
#include "profiler/record/search/solve.h"

namespace {

using namespace shardlens;
using namespace shardlens::profiler;

int exit_code_of(const Solution& solution) {
  if (solution.is_solved()) return 0;
  const bool never_fits = !solution.largest && solution.too_large;
  return never_fits ? kDoesNotFit : kNotRecorded;
}

int run(const SolveOptions& options) {
  VariantRunner runner("solve", options.record, replays_of, times_with(options.record));
  const Solution solution = solve(options, runner);
  print_output(options.prints_json ? solution_json(options, solution)
                                   : solution_text(options, solution));
  return exit_code_of(solution);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("shardlens solve", [&] {
    const SolveOptions options = parse_solve_options({argv + 1, argv + argc});
    if (options.help) return fmt::print("{}", solve_help()), 0;
    return run(options);
  });
}
