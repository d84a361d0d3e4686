#include <fmt/format.h>

#include "base/process/program.h"
#include "runtime/infer/infer_command.h"

int main(int argc, char** argv) {
  return shardlens::run_program("shardlens infer", [&] {
    return fmt::print("{}", shardlens::runtime::infer_command({argv + 1, argv + argc})), 0;
  });
}
