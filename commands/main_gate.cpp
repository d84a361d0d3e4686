#include <cstdio>

#include "base/process/program.h"
#include "profiler/commands/gate.h"
#include "profiler/report/recording_report.h"

using namespace shardlens;
using namespace shardlens::profiler;

int main(int argc, char** argv) {
  constexpr int kNotCompared = 2;  // 1 means that a peak grew
  return run_program(
      "shardlens gate",
      [&] {
        const CommandOutcome outcome = gate_command({argv + 1, argv + argc}, report_of);
        print_output(outcome.out);
        print_output(outcome.error, stderr);
        return outcome.exit_code;
      },
      kNotCompared);
}
