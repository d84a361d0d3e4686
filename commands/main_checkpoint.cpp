#include "base/process/program.h"
#include "runtime/checkpoint/checkpoint_commands.h"

int main(int argc, char** argv) {
  return shardlens::run_program("shardlens checkpoint", [&] {
    const auto outcome = shardlens::runtime::checkpoint_command({argv + 1, argv + argc});
    shardlens::print_output(outcome.out);
    return outcome.exit_code;
  });
}
