#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <vector>

#include "profiler/commands.h"
#include "profiler/reader.h"
#include "profiler/recording_report.h"

namespace {

using namespace shardlens::profiler;

int fail(const std::exception& error, int exit_code) {
  fmt::print(stderr, "shardlens profile: {}\n", error.what());
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const CommandOutcome outcome =
        profile_command({argv + 1, argv + argc}, {.analyse = report_of, .check = check_profile});
    fmt::print("{}", outcome.out);
    fmt::print(stderr, "{}", outcome.error);
    return outcome.exit_code;
  } catch (const std::invalid_argument& error) {
    return fail(error, 2);
  } catch (const std::exception& error) {
    return fail(error, 1);
  }
}
