#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>

#include "planner/plan_command.h"

namespace {

int fail(const std::exception& error, int exit_code) {
  fmt::print(stderr, "shardlens plan: {}\n", error.what());
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  const char* const settings = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
  try {
    const auto outcome = shardlens::planner::plan_command({argv + 1, argv + argc},
                                                          settings == nullptr ? "" : settings);
    fmt::print("{}", outcome.out);
    return outcome.exit_code;
  } catch (const std::invalid_argument& error) {
    return fail(error, 2);
  } catch (const std::exception& error) {
    return fail(error, 1);
  }
}
