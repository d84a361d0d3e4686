// What `--engine pytorch-fsdp2` says of cases: rows of tests/reference/engine_null.py on standard
// input, one a line; a line of JSON each on standard output: [allocated, reserved] bytes, or null
// where the GPU is too small. For tests/bench/engine_accuracy.
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/support/engine_cases.h"

int main(int count, char** arguments) {
  using namespace shardlens;
  const std::string gpu = count > 1 ? arguments[1] : "h200";
  try {
    for (std::string line; std::getline(std::cin, line);) {
      const auto peak = test::predicted_peak(test::engine_case(nlohmann::json::parse(line), gpu));
      const nlohmann::json answer =
          peak ? nlohmann::json{peak->allocated_bytes, peak->reserved_bytes}
               : nlohmann::json(nullptr);
      std::cout << answer.dump() << '\n';
    }
  } catch (const std::exception& error) {
    std::cerr << "print_engine_peaks: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
