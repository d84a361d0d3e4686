// The memory of a GPU that a rank takes beside LibTorch's caching allocator: CUDA's context, the
// code that libraries load, NCCL's buffers. A plan subtracts it from the capacity first.
//
// *Cold* figures come from publications (profiler/null_device/outside_figures.h), and are the
// planner's weakest; a *calibration* from one recorded run on the same kind of machine replaces
// them, and so does a size that the user *gives*.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/gpus.h"
#include "planner/schedule/schedule.h"

namespace shardlens::planner {

/// The outside memory that one recorded run on a GPU took.
struct Calibration {
  int64_t context_bytes = 0;
  int64_t modules_bytes = 0;
  int64_t nccl_bytes_a_communicator = 0;
  std::string source;  // a file
  std::string gpu{};   // the driver's name; empty: not known

  bool operator==(const Calibration&) const = default;
};

/// The outside memory as far as the user knows it; nothing: cold figures are used.
struct KnownOutside {
  std::optional<Calibration> calibration{};
  std::optional<int64_t> bytes{};  // --beside: the total; there is no calibration then
};

struct OutsideMemory {
  int64_t context_bytes = 0;  // if cold, with the modules
  int64_t modules_bytes = 0;  // code that libraries load, and what they keep for themselves
  int64_t nccl_bytes = 0;     // of all communicators
  int communicators = 0;
  std::optional<int64_t> given_bytes{};      // the total, as the user gave it
  int64_t below_bytes = 0, above_bytes = 0;  // by which published figures differ from this one
  std::string source{};                      // of a calibration
  std::string doubt{};                       // why a cold figure may not hold; empty: none

  int64_t total_bytes() const {
    return given_bytes.value_or(context_bytes + modules_bytes + nccl_bytes);
  }
  int64_t least_bytes() const { return total_bytes() - below_bytes; }
  int64_t most_bytes() const { return total_bytes() + above_bytes; }
  bool is_calibrated() const { return !source.empty(); }
};

/// Returns how many NCCL communicators a rank shares with peers; each serves one channel or
/// several. `wanted` is the value of --communicators.
int communicators_of(const Schedule& schedule, int64_t wanted);

/// Returns the outside memory of a rank on `gpu`.
OutsideMemory outside_memory(const Gpu& gpu, const Schedule& schedule, int64_t communicators,
                             const KnownOutside& known);

/// Reads a calibration from a recording (FILE.slp: the driver's allocations by owner, and what the
/// device reported in use) or from FILE.json, an object with "context_bytes", "modules_bytes" and
/// "nccl_bytes_a_communicator". Throws std::invalid_argument if the file says nothing about them.
Calibration read_calibration(const std::string& path);

}  // namespace shardlens::planner
