// Reads how far the Python processes of a command got, as each wrote down itself
// (profiler/record/python/shardlens_record/account.py), and finds out why nothing was recorded.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/fault.h"

namespace shardlens::profiler {

/// Holds one thing that a process wrote down, with its time.
struct AccountEntry {
  int process = 0;
  double time_s = 0;
  /// "started": Python runs, with the recorder; text: the interpreter. "no_script", "no_module":
  /// what Python should run does not exist. "torch": it has been imported. "gpu": CUDA was
  /// initialised. "refused": why there is no recording. "import_error", "raised": the error that
  /// ended the process, and where. "out_of_memory": the request for GPU memory that failed.
  std::string what = {};
  std::string text = {};
};

/// Holds what all processes wrote down, sorted by time.
struct Accounts {
  std::vector<AccountEntry> told;

  /// Returns the first entry of this kind, or null.
  const AccountEntry* first_entry(std::string_view what) const;
  /// Returns the first error that ended a process, or null. If some processes have used a GPU, only
  /// their errors count: others may be helpers, whose failure the program expects.
  const AccountEntry* first_error() const;
};

/// Reads a folder with one file for each process. Lines that make no sense are left out, such as
/// those of a process that was killed while it wrote.
Accounts read_accounts(const std::filesystem::path& folder);

/// Says how the command ended.
struct CommandEnd {
  int exit_code = 0;             // 128 and more: the signal that ended it
  std::string how = {};          // if something ended it: "the command was ended by Killed"
  bool was_interrupted = false;  // by a signal to us, which we passed on

  /// True if a signal ended it. A shell reports this as 128 plus the signal's number.
  bool is_by_signal() const { return !how.empty() || (exit_code > 128 && exit_code <= 192); }
  /// True if it failed, crashed or was interrupted.
  bool is_failure() const { return exit_code != 0 || !how.empty(); }
};

/// Returns in one line why a command left no recording. `is_attached` is true if it ran on the GPUs
/// of this machine.
std::string why_nothing(const Accounts& accounts, const CommandEnd& end,
                        const std::vector<std::string>& command, bool is_attached);

/// Returns how a command failed and why: "the program failed with exit code 1, ValueError: no data
/// (train.py:30)". Returns nothing if it did not fail.
Problem failure_text(const Accounts& accounts, const CommandEnd& end);

}  // namespace shardlens::profiler
