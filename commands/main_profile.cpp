#include <cstdio>

#include "base/process/program.h"
#include "commands/step_times.h"
#include "profiler/commands/commands.h"
#include "profiler/file/reader.h"
#include "profiler/file/work_layer.h"
#include "profiler/report/recording_report.h"
#include "viewer/page/export_page.h"

using namespace shardlens;
using namespace shardlens::profiler;

namespace {

bool has_work(const std::string& recording) { return !read_work(recording).empty(); }

}  // namespace

int main(int argc, char** argv) {
  return run_program("shardlens profile", [&] {
    const CommandOutcome outcome = profile_command(
        {argv + 1, argv + argc}, {.analyse = report_of,
                                  .check = check_profile,
                                  .exporters = {.write_page = shardlens::viewer::export_page,
                                                .simulate_step = simulated_step_of},
                                  .time = step_time_of,
                                  .world_time = world_time_of,
                                  .has_work = has_work});
    print_output(outcome.out);
    print_output(outcome.error, stderr);
    return outcome.exit_code;
  });
}
