#include <cstdlib>

#include "base/process/program.h"
#include "planner/plan_command.h"

int main(int argc, char** argv) {
  const char* const settings = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
  return shardlens::run_program("shardlens plan", [&] {
    const auto outcome = shardlens::planner::plan_command({argv + 1, argv + argc},
                                                          settings == nullptr ? "" : settings);
    shardlens::print_output(outcome.notes, stderr);  // not mixed into the JSON of --json
    shardlens::print_output(outcome.out);
    return outcome.exit_code;
  });
}
