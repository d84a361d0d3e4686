#include <fmt/format.h>

#include <string>

#include "base/durable_files.h"
#include "base/output_file.h"
#include "base/process/program.h"
#include "commands/recording_replay.h"
#include "profiler/record/gpu_check.h"

namespace {

using namespace shardlens;
using namespace shardlens::profiler;

constexpr int kInterrupted = 130;

int check(const GpuCheckOptions& options) {
  expect_writable(options.out);
  const GpuCheck check = check_gpu(options, replays_of);
  write_file(options.out, gpu_check_json(check));
  print_output(gpu_check_text(check));
  fmt::print("wrote {}; please send it in, see CONTRIBUTING.md\n", options.out);
  if (check.was_interrupted) return kInterrupted;
  return check.is_same() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("shardlens check-gpu", [&] {
    const GpuCheckOptions options = parse_gpu_check_options({argv + 1, argv + argc});
    if (options.help) return fmt::print("{}", gpu_check_help()), 0;
    return check(options);
  });
}
