// Records programs on this machine's GPU and on the simulated one of its kind, and compares them:
// every request, free, segment and failure of PyTorch's allocator must be the same, in the same
// order. We use this to find out what a simulated GPU is worth on hardware that we do not have.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/choice.h"
#include "profiler/compare/allocator_events.h"
#include "profiler/record/judged_rank.h"

namespace shardlens::profiler {

struct GpuCheckOptions {
  bool help = false;
  std::string python = "python3";
  std::string out = "gpu-check.json";
  std::string keep;                  // folder that gets the recordings; empty: they are removed
  double limit_s = 300;              // programs that it leaves no time for are not run
  std::vector<std::string> command;  // the only program; empty: the built-in ones
};

/// Parses `arguments`, without the program's name. Throws std::invalid_argument.
GpuCheckOptions parse_gpu_check_options(const std::vector<std::string>& arguments);

std::string gpu_check_help();

/// `same`: all events and both peaks. `same_requests`: the program asked for the same, but got
/// other blocks, since which free block PyTorch takes up to 2.11 depends on the driver's addresses.
enum class CheckOutcome : uint8_t {
  same,
  same_requests,
  differs,
  failed,
  not_compared,
  not_reached
};
constexpr auto choice_words(CheckOutcome) {
  return words("same", "same_requests", "differs", "failed", "not_compared", "not_reached");
}

/// Figures of one recording.
struct CheckedRecording {
  int64_t allocated_bytes = 0;  // peaks
  int64_t reserved_bytes = 0;
  int64_t beside_bytes = 0;  // of the GPU, outside PyTorch; estimated for a simulated one
  int64_t retries = 0;
  int64_t failures = 0;                 // requests that found no memory
  std::optional<PeakBands> bands = {};  // of the peaks; nothing: unknown

  bool has_peaks_of(const CheckedRecording& other) const {
    return allocated_bytes == other.allocated_bytes && reserved_bytes == other.reserved_bytes;
  }
  /// Returns true if these peaks may be those of the other recording with other addresses.
  bool is_in_bands_of(const CheckedRecording& other) const;
};

/// The name of a program that the user gives.
constexpr const char* kOwnProgram = "command";

struct CheckedProgram {
  std::string name;
  CheckOutcome outcome = CheckOutcome::not_reached;
  std::string reason = {};  // one line for people
  std::optional<CheckedRecording> on_gpu = {};
  std::optional<CheckedRecording> simulated = {};
  AllocatorComparison events = {};
  double seconds = 0;
};

/// The facts of this machine, as the first recording has them. It names neither paths, hosts nor
/// people.
struct CheckedGpu {
  std::string name;            // as the driver gives it
  std::string simulated;       // "h100"; empty: no simulated GPU is of its kind
  int64_t capacity_bytes = 0;  // of the GPU
  int64_t known_bytes = 0;     // of the simulated one, unless it is told otherwise
  std::string torch_version;   // "2.11.0+cu130"
  std::string driver_version;  // "580.159.04"; empty: unknown
};

struct GpuCheck {
  CheckedGpu gpu;
  std::vector<CheckedProgram> programs;
  bool was_interrupted = false;

  /// True if every program was compared and is the same.
  bool is_same() const;
};

/// Runs the programs, each in a new process, first on the GPU. `replay` finds what other addresses
/// would lead to. Progress goes to stderr. Throws std::invalid_argument if there is no Python with
/// PyTorch, or if the first program used no GPU.
GpuCheck check_gpu(const GpuCheckOptions& options, const ReplayRun& replay);

std::string gpu_check_text(const GpuCheck& check);
/// Returns the file to send in: schema "shardlens.gpu_check/1".
std::string gpu_check_json(const GpuCheck& check);

}  // namespace shardlens::profiler
