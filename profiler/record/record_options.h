// Parses the command line of `shardlens record`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"
#include "profiler/record/known/routing.h"
#include "profiler/record/levers/levers.h"

namespace shardlens::profiler {

/// Says which ranks of a simulated world are run, each in its own process.
struct WantedRanks {
  enum class Kind : uint8_t { all, roles, listed };
  Kind kind = Kind::all;
  std::vector<int> listed = {};  // in the given order, without repetition
};

struct RecordOptions {
  bool help = false;
  Device device;  // a null device, or cuda
  std::optional<int> world_size;
  std::optional<int> rank;
  std::optional<WantedRanks> ranks;  // several ranks; `rank` is not given then
  std::optional<int> gpus_per_node;
  std::optional<int> gpu_index;         // whose memory is recorded; else the first that it uses
  std::optional<int64_t> beside_bytes;  // of the simulated GPU, beside PyTorch; else estimated
  std::optional<int64_t> steps;         // the program ends after as many optimizer steps
  std::optional<double> timeout_s;
  bool may_grow = true;  // false: a program that grows ends with an exit code of its own
  std::vector<std::string> true_at;  // "train.py:30": tensors of the null device are True there
  Routing routing;                   // how tokens choose experts if scores are not known
  bool draws_weights = false;        // also random values on the host that nobody reads
  bool traces_work = false;          // also what its GPU is asked to do (recording/work.h)
  std::string calibration;           // a file with times of the GPU (planner/time/calibration.h)
  std::vector<Lever> levers;         // changes to the program
  bool finds_holders = false;        // finds the variables that hold what grows
  bool looks = false;                // also finds out which levers apply, and keeps that
  bool tells_imports = false;        // also tells what the program imports (warm_python.h)
  bool is_alone = false;             // is not forked from a process that has imported before
  bool lists_levers = false;         // prints a list of all levers, and records nothing
  std::string out;                   // folder of the run
  std::string kernels;  // folder for those that Triton compiles; empty: none that outlives the run
  std::string log;      // the program's output goes there; empty: where ours goes
  std::vector<std::string> command;  // not empty

  /// Returns the device's name in recordings: "null:h100", "cuda".
  std::string device_name() const;
  /// Returns how many GPUs a simulated node has: the given number, else the largest divisor of the
  /// world size up to 8; 1 if the program sets the world size.
  int gpus() const;
  /// True if the program runs on this machine's GPUs, with all of its ranks.
  bool is_attached() const { return device.kind == DeviceKind::cuda; }
};

/// Makes the levers on the simulated machine, world and gpu, true of its options. Throws
/// std::invalid_argument if another option contradicts them.
void pull_machine_levers(RecordOptions& options);

/// Parses `arguments`, without the program's name. Throws std::invalid_argument.
RecordOptions parse_record_options(const std::vector<std::string>& arguments);

std::string record_help();

}  // namespace shardlens::profiler
