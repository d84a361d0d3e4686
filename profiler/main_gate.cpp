#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "profiler/gate.h"
#include "profiler/recording_report.h"

namespace {

using namespace shardlens::profiler;

int fail(const std::exception& error, int exit_code) {
  fmt::print(stderr, "shardlens gate: {}\n", error.what());
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const CommandOutcome outcome = gate_command({argv + 1, argv + argc}, report_of);
    fmt::print("{}", outcome.out);
    fmt::print(stderr, "{}", outcome.error);
    return outcome.exit_code;
  } catch (const std::exception& error) {
    return fail(error, 2);  // 1 is a peak that grew
  }
}
