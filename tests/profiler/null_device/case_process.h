// Runs a case of this program in its own process, with another environment.
#pragma once

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <sstream>
#include <string>

#include "tests/support/process.h"

namespace shardlens::tests {

/// The lines that the case prints after "> ". `variable` is NAME=VALUE.
inline std::string output_of_case(const std::string& name, const std::string& variable) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe").string();
  const ProcessEnd ended = run({"/usr/bin/env", variable, self, name});
  INFO(ended.out << ended.err);
  REQUIRE(ended.exit_code == 0);
  std::string lines;
  std::istringstream stream(ended.out);
  for (std::string line; std::getline(stream, line);) {
    if (line.starts_with("> ")) lines += line.substr(2) + "\n";
  }
  return lines;
}

}  // namespace shardlens::tests
