// Prints what `--engine pytorch-fsdp2` says about cases: rows of tests/reference/engine_null.py on
// standard input, one a line; a line of JSON each on standard output: [allocated, reserved] bytes,
// or null if the GPU is too small. For tests/bench/engine_accuracy and tests/versions/new_version.
//
//     print_engine_peaks [GPU]
//     print_engine_peaks --events     the third step's requests to the allocator, on an H200
//     print_engine_peaks --rules      versions of PyTorch, one a line: whose rules are nearest
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "models/torch_rules.h"
#include "tests/support/engine_cases.h"

namespace {

using namespace shardlens;

nlohmann::json answer_to(const std::string& line, const std::string& what) {
  constexpr const char* kGpu = "h200";
  if (what == "--rules") return models::nearest_torch_rules(line).version;
  const auto row = nlohmann::json::parse(line);
  if (what == "--events") return tests::predicted_events(tests::engine_case(row, kGpu));
  const auto peak = tests::predicted_peak(tests::engine_case(row, what.empty() ? kGpu : what));
  if (!peak) return nullptr;
  return {peak->allocated_bytes, peak->reserved_bytes};
}

}  // namespace

int main(int count, char** arguments) {
  const std::string what = count > 1 ? arguments[1] : "";
  try {
    for (std::string line; std::getline(std::cin, line);) {
      std::cout << answer_to(line, what).dump() << '\n';
    }
  } catch (const std::exception& error) {
    std::cerr << "print_engine_peaks: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
