// Prints how AllocatorModel follows the histories of real GPUs in a folder, one JSON document a
// line, for tests/evidence/three_columns.py.
//
//     print_gpu_replays FOLDER...
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>

#include "tests/evidence/gpu_history.h"
#include "tests/evidence/gpu_replay.h"

namespace {

using namespace shardlens::tests;

nlohmann::json json_of(const GpuHistory& history) {
  nlohmann::json json = {{"file", history.file},
                         {"gpu", history.gpu},
                         {"torch", history.torch},
                         {"has_private_pools", history.has_private_pools}};
  if (!history.is_followed()) return json;
  const Comparison seen = GpuReplay(history, true).run();
  json["allocations"] = seen.allocations;
  json["placed_alike"] = seen.placed_alike;
  json["retries"] = seen.model_retries;
  json["retries_of_gpu"] = seen.retries;
  json["failures_alike"] = seen.failures_alike;
  json["reserved_peak"] = seen.model_reserved_bytes;
  json["reserved_peak_of_gpu"] = seen.reserved_bytes;
  return json;
}

}  // namespace

int main(int count, char** arguments) {
  try {
    for (int i = 1; i < count; ++i) {
      for (const GpuHistory& history : read_gpu_histories(arguments[i])) {
        std::cout << json_of(history).dump() << '\n';
      }
    }
  } catch (const std::exception& error) {
    std::cerr << "print_gpu_replays: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
