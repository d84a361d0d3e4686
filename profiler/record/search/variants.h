// Runs variants of one program, each with other levers or another command, and keeps the recording
// of each in a folder of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "profiler/record/accounts.h"
#include "profiler/record/judged_rank.h"
#include "profiler/record/levers/lever_sites.h"
#include "profiler/record/python_program.h"
#include "profiler/record/record_options.h"
#include "profiler/record/recorded_run.h"
#include "profiler/record/recorder_files.h"
#include "profiler/record/time/predicted_time.h"
#include "profiler/record/worker_runs.h"

namespace shardlens::profiler {

enum class VariantOutcome : uint8_t {
  measured,       // the program ran to its end
  out_of_memory,  // of the simulated GPU
  failed,         // the program ended with an error of its own
  idle            // nothing was recorded: a lever does not apply, or the program used no GPU
};

/// Holds what a variant took of the GPU, or how it ended.
struct VariantResult {
  RecordOptions options = {};  // as it was run
  VariantOutcome outcome = VariantOutcome::idle;
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
  int64_t outside_bytes = 0;        // of the GPU, beside PyTorch
  std::vector<int64_t> marks = {};  // figures that two runs with equal memory have in common
  bool has_retries = false;         // of the allocator: it freed cached memory to go on
  int64_t steps = 0;                // of training
  /// The steps after which all others are alike and no peak comes; nothing: it ended before.
  std::optional<int64_t> settled_steps = {};
  std::string why = {};                    // how it ended, if not measured
  std::optional<PeakBands> bands = {};     // of its peaks; nothing: not asked, or unknown
  std::vector<std::string> doubts = {};    // about whether it fits, as `shardlens record` has them
  std::optional<PredictedTime> time = {};  // of a step; nothing: not asked, or not measured
  int exit_code = 0;
  int64_t host_bytes = 0;
  bool was_forked = false;  // from a process that had imported what the program imports
  Accounts accounts = {};

  int64_t device_bytes() const { return reserved_bytes + outside_bytes; }
  /// Returns the memory that it is to fit: that of its own GPU if a lever names one, else `bytes`.
  int64_t limit_bytes(int64_t bytes) const;
  bool fits(int64_t bytes) const {
    return outcome == VariantOutcome::measured && device_bytes() <= limit_bytes(bytes);
  }
};

/// Returns "582.00 MiB allocated, 852.00 MiB reserved", or how the variant ended.
std::string result_text(const VariantResult& result);

/// Runs variants, and returns fewer results than it was given if it was interrupted.
using RunVariants = std::function<std::vector<VariantResult>(
    const std::vector<RecordOptions>& all, const std::vector<std::string>& names)>;

/// Holds the kernels that Triton compiles, so that each is compiled once and not by every variant:
/// a program that chooses kernels by trying them does little else in its first step.
class SharedKernels {
 public:
  SharedKernels();
  ~SharedKernels();
  SharedKernels(const SharedKernels&) = delete;
  SharedKernels& operator=(const SharedKernels&) = delete;

  /// Returns the folder; "" if none could be made.
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

/// Runs variants, as many at once as this host has cores and memory for, once one has shown how
/// much memory a process takes. Later ones are forked from a process that has imported what the
/// first imported, where that is safe. If the process that started this one has an executor, its
/// workers run them instead. Progress goes to stderr.
class VariantRunner {
 public:
  /// Finds the program's Python and the recorder for it. `command` names the command of ours in
  /// lines on stderr. `replay` finds what other addresses would lead to, `predict` how long a step
  /// takes, if the work of variants is traced. Throws as find_python() and recorder_for() do.
  VariantRunner(std::string command, const RecordOptions& options, ReplayRun replay,
                PredictTime predict = {});

  /// Returns the results in the order of `all`, without those that an interrupt left out. `names`
  /// names them in lines on stderr.
  std::vector<VariantResult> run(const std::vector<RecordOptions>& all,
                                 const std::vector<std::string>& names);

  bool was_interrupted() const { return was_interrupted_; }
  int jobs() const { return jobs_; }

 private:
  bool run_part(const std::vector<RecordOptions>& part, const ProgramListener& ended);
  void note_imports(const RecordOptions& options, const RecordedRun& run);
  void stop_forking();
  void warm_up_for(const std::vector<RecordOptions>& part);
  void say_progress(const std::string& name, const VariantResult& result, double seconds);

  std::string command_;
  PythonProgram program_;
  SharedKernels kernels_;
  RecordFiles files_;
  ReplayRun replay_;
  PredictTime predict_;
  std::optional<Workers> workers_;  // nothing: this host runs the variants
  std::unique_ptr<WarmPython> warm_;
  std::string
      imports_;  // what the last variant has told of its imports; "": it is not safe to fork
  bool may_fork_ = true;
  int jobs_ = 1;
  size_t runs_ = 0;
  size_t expected_ = 0;
  double seconds_ = 0;
  bool was_interrupted_ = false;
};

/// Returns the name of a variant's folder.
std::string folder_of(const std::string& name);

/// Returns options of a variant that runs into a folder inside that of `options`, with its output
/// in a file there.
RecordOptions in_folder(const RecordOptions& options, const std::string& name);

}  // namespace shardlens::profiler
