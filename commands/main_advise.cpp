#include <fmt/format.h>

#include "base/process/program.h"
#include "commands/recording_replay.h"
#include "commands/step_times.h"
#include "profiler/record/record_verdict.h"
#include "profiler/record/search/advise.h"

namespace {

using namespace shardlens;
using namespace shardlens::profiler;

int exit_code_of(const Findings& advice) {
  if (advice.base.outcome != VariantOutcome::measured) return kNotRecorded;
  if (advice.base.fits(advice.fit_bytes) || advice.best() != nullptr) return 0;
  return advice.was_interrupted ? kNotRecorded : kDoesNotFit;
}

int run(const AdviseOptions& options) {
  VariantRunner runner("advise", options.record, replays_of, times_with(options.record));
  const Findings advice = advise(options, runner);
  print_output(options.prints_json ? findings_json(options, advice)
                                   : findings_text(options, advice));
  return exit_code_of(advice);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("shardlens advise", [&] {
    const AdviseOptions options = parse_advise_options({argv + 1, argv + argc});
    if (options.help) return fmt::print("{}", advise_help()), 0;
    return run(options);
  });
}
