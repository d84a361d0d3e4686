#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "planner/gpus.h"
#include "planner/planner.h"
#include "profiler/program.h"
#include "profiler/recording_report.h"
#include "profiler/report/report.h"
#include "runtime/installation.h"
#include "runtime/record/python_program.h"
#include "runtime/record/record_options.h"
#include "runtime/record/record_verdict.h"
#include "runtime/record/recorded_run.h"
#include "runtime/record/recorder_files.h"

namespace {

using namespace shardlens;
using namespace shardlens::runtime;

/// Of a real GPU, what was in use beside PyTorch when most was; of a null device, what that does
/// not take from its capacity.
int64_t outside_bytes(const RecordOptions& options, const profiler::RankReport& report) {
  if (options.is_attached()) {
    const profiler::Ledger& ledger = report.ledger;
    if (!ledger.device_used_bytes) return 0;  // nobody has asked: the program was killed too soon
    return *ledger.device_used_bytes - ledger.reserved_bytes.value_or(0);
  }
  const int world_size = report.header.world_size;
  const planner::Gpu& gpu = planner::find_gpu(options.device.gpu);
  const int64_t cuda_bytes = planner::outside_memory(gpu, {}, 0, nullptr).total_bytes();
  if (world_size == 1) return cuda_bytes;
  return cuda_bytes + planner::cold_nccl_bytes(gpu, {.size = world_size, .stride = 1});
}

/// Prints what was recorded; the worst verdict's exit code.
int report_all(const RecordOptions& options, const RecordedRun& run) {
  int exit_code = 0;
  std::vector<profiler::RankReport> reports;
  std::string verdicts;
  for (const auto& path : run.recordings) {
    profiler::RankReport report = profiler::report_of(path.string());
    report.source = path.string();
    const RecordFacts facts = read_record_facts(path.string());
    const RecordVerdict verdict = verdict_of(report, facts, outside_bytes(options, report));
    verdicts += fmt::format("\n{}: {}\n", path.string(), verdict.line);
    if (verdict.exit_code != 0 && exit_code != 3) exit_code = verdict.exit_code;
    reports.push_back(std::move(report));
  }
  profiler::print_output(profiler::report_text(std::move(reports)) + verdicts);
  return exit_code;
}

int record(const RecordOptions& options) {
  const PythonProgram program = find_python(options.command);
  const auto record = support_folder("record");
  const RecordFiles files = recorder_for(program, record);
  if (!options.is_attached()) check_stubs(program, files.stubs, record);
  const RecordedRun run = run_recorded(options, files);
  if (!run.ended.empty()) fmt::print(stderr, "shardlens record: {}\n", run.ended);
  if (run.exit_code != 0) {
    fmt::print(stderr, "shardlens record: the command's exit code is {}\n", run.exit_code);
  }
  if (run.recordings.empty()) {
    fmt::print(
        stderr,
        "shardlens record: nothing was recorded: no PyTorch of {} used a GPU{}; a Python that "
        "is started with -I, -E or -S cannot be recorded\n",
        program.interpreter,
        options.is_attached() ? " (without one, give --device, such as null:h100)" : "");
    return run.exit_code == 0 ? 1 : run.exit_code;
  }
  const int verdict = report_all(options, run);
  return run.exit_code == 0 ? verdict : run.exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  return profiler::run_program("shardlens record", [&] {
    const RecordOptions options = parse_record_options({argv + 1, argv + argc});
    if (options.help) return fmt::print("{}", record_help()), 0;
    return record(options);
  });
}
