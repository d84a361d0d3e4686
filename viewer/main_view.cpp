#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <stdexcept>

#include "viewer/viewer.h"

namespace {

int fail(const std::exception& error, int exit_code) {
  fmt::print(stderr, "shardlens view: {}\n", error.what());
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return shardlens::viewer::run_viewer({argv + 1, argv + argc});
  } catch (const std::invalid_argument& error) {
    return fail(error, 2);
  } catch (const std::exception& error) {
    return fail(error, 1);
  }
}
