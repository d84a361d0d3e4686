#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <stdexcept>

#include "runtime/checkpoint_commands.h"

namespace {

int fail(const std::exception& error, int exit_code) {
  fmt::print(stderr, "shardlens checkpoint: {}\n", error.what());
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto outcome = shardlens::runtime::checkpoint_command({argv + 1, argv + argc});
    fmt::print("{}", outcome.out);
    return outcome.exit_code;
  } catch (const std::invalid_argument& error) {
    return fail(error, 2);
  } catch (const std::exception& error) {
    return fail(error, 1);
  }
}
