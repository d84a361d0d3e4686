// Decides whether a recorded program fits a GPU.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/fault.h"
#include "profiler/record/accounts.h"
#include "profiler/record/advice/program_uses.h"
#include "profiler/recording/peak_bands.h"
#include "profiler/report/report.h"

namespace shardlens::profiler {

/// Names figures that PyTorch counts itself and that a recording also has.
enum class Figure : uint8_t { peak_allocated, peak_reserved, allocations, allocated, reserved };
constexpr size_t kFigures = 5;
using Figures = std::array<std::optional<int64_t>, kFigures>;

/// Describes a process group that a rank shares with others on GPUs: an NCCL communicator.
struct GpuGroup {
  int ranks = 0;
  int on_node = 0;  // how many of these are on the rank's own node

  bool operator==(const GpuGroup&) const = default;
};

/// The peaks that the requests of a recording lead to elsewhere.
struct Replays {
  /// The reserved peak without a limit, of a program that had retries; nothing: unknown.
  std::optional<int64_t> unlimited_peak_bytes = {};
  std::optional<PeakBands> bands = {};         // of the peaks; nothing: unknown
  std::optional<PeakBands> bands_in_gpu = {};  // within its memory; nothing: none comes near
  std::string doubt = {};                      // why these are not known; empty: they are
};

/// Random fills of weights on the host that were left out, since nothing read the values.
struct LeftOutFills {
  int64_t tensors = 0;
  int64_t bytes = 0;
};

/// Holds what the recorded process reported about itself when it ended.
struct RecordFacts {
  int64_t retries = 0;  // allocations served after cached memory was freed
  int64_t steps = 0;
  int64_t shapes = 0;    // that depended on values, which are all 0 on a null device
  Figures counted = {};  // by PyTorch, across all resets by the program
  std::vector<GpuGroup> communicators = {};
  std::vector<std::vector<int>> groups = {};  // the ranks of each group that the program made
  std::vector<std::string> doubts = {};       // what the recording may lack, one line each
  ProgramUses uses = {};                      // what the program does already to take less
  Replays replays = {};
  LeftOutFills left_out = {};
  bool is_history = false;  // recorded by PyTorch's own memory history
  bool is_known = false;    // false: the process ended without reporting
};

/// Reads rankR.json beside rankR.slp.
RecordFacts read_record_facts(const std::string& recording);

/// Compares a recording with PyTorch's own counters of the same process: both peaks, the number of
/// allocations, and what was allocated and reserved when the recording was closed.
struct Comparison {
  bool is_equal = false;
  std::string line = {};  // "as PyTorch counted: equal", or what differs
  Figures recorded = {};
};

/// Returns nothing if the process ended without reporting, or allocated nothing.
std::optional<Comparison> compare_counters(const RankReport& report, const RecordFacts& facts);

/// Adds the comparison to rankR.json beside the recording: `as_pytorch_counted`, and the
/// recording's figures as `recorded`, under the same names as PyTorch's figures.
void keep_comparison(const std::string& recording, const Comparison& comparison);

/// The memory that is taken of the GPU beside PyTorch.
struct OutsideBytes {
  int64_t bytes = 0;
  int64_t least_bytes = 0, most_bytes = 0;  // equal to `bytes` unless published figures differ
  std::string from = "unknown";             // "measured", "given" or "published"
  std::string estimate = {};  // what they consist of, with sources; empty: no estimate
  std::string doubt = {};     // why the estimate may not hold; empty: none
};

/// Adds these to rankR.json beside the recording, as `beside_pytorch`.
void keep_outside(const std::string& recording, const OutsideBytes& outside);

/// The memory that a rank takes of its host, and that the ranks of a node take together.
struct HostNeed {
  int64_t rank_bytes = 0;    // resident at most, with pinned memory
  int64_t pinned_bytes = 0;  // of these
  int ranks_on_node = 1;     // that take as much as this one

  int64_t node_bytes() const { return rank_bytes * ranks_on_node; }
};

/// Adds this to rankR.json beside the recording, as `host`.
void keep_host_need(const std::string& recording, const HostNeed& need);

/// A verdict as rankR.json keeps it, with the peaks that it is about.
struct KeptVerdict {
  std::string line = {};
  int exit_code = 0;  // as in RecordVerdict
  bool is_out_of_memory = false;
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t beside_bytes = 0;  // of the GPU, taken by others than PyTorch

  int64_t device_bytes() const { return reserved_bytes + beside_bytes; }
};

/// Adds the verdict to rankR.json beside the recording, as `verdict`.
void keep_verdict(const std::string& recording, const KeptVerdict& verdict);
/// Returns the verdict that was kept; nothing if there is none.
std::optional<KeptVerdict> read_verdict(const std::string& recording);

/// Adds a value to rankR.json beside the recording, if that exists.
void keep_fact(const std::string& recording, const char* key, const nlohmann::json& value);

constexpr int kGrows = 1;  // if `--fail-on growth` is given
constexpr int kDoesNotFit = 3;
constexpr int kFitsWithRetries = 4;
constexpr int kNotRecorded = 5;  // or not to the end

struct RecordVerdict {
  std::string line = {};                 // "fits: 71.4 GiB of 79.2 GiB (...), 7.8 GiB free"
  int exit_code = 0;                     // 0 fits, 3 does not, 4 only with retries, 5: no verdict
  bool is_out_of_memory = false;         // a request for memory has failed
  bool is_nearly_full = false;           // it fits, with less than a tenth of the GPU free
  bool grows = false;                    // from step to step
  std::vector<std::string> doubts = {};  // why the verdict may not hold, one line each
};

/// Decides whether the program fits. `outside_bytes` is what CUDA, NCCL and others take of the GPU
/// beside PyTorch. `failure` says how the program failed; nothing: it did not. A program that
/// failed, or whose recording was not closed, is never said to fit: its peak may have come later.
/// A program that grows is said to grow, too. If PyTorch's history has dropped events, the peaks
/// are those of PyTorch's counters, which are complete. The verdict includes the doubts of `facts`.
RecordVerdict verdict_of(const RankReport& report, const RecordFacts& facts, int64_t outside_bytes,
                         const Problem& failure);

/// Returns the exit code of `shardlens record`: 3 if memory ran out, however the program ended;
/// else the program's own if it failed; else that of the worst verdict, where 3 is certain; 5
/// without a verdict; 1 in place of 0 if a program grows that must not. `is_out_of_memory` is true
/// if a process without a recording ran out of memory.
int exit_code_of(const CommandEnd& end, const std::vector<RecordVerdict>& verdicts,
                 bool is_out_of_memory, bool may_grow = true);

}  // namespace shardlens::profiler
