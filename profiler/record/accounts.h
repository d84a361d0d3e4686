// Reads how far the Python processes of a command came, as each has told by itself
// (profiler/record/python/shardlens_record/account.py), and finds why nothing was recorded, if so.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/fault.h"

namespace shardlens::profiler {

/// Holds one thing that a process has said, with its time.
struct AccountEntry {
  int process = 0;
  double time_s = 0;
  /// "started": Python runs, with the recorder; text: the interpreter. "no_script", "no_module":
  /// what Python was to run does not exist. "torch": it has been imported. "gpu": CUDA was
  /// initialised. "refused": why there is no recording. "import_error", "raised": what ended the
  /// process, and where. "out_of_memory": the memory of a GPU that could not be had.
  std::string what = {};
  std::string text = {};
};

/// Holds what all processes have said, sorted by time.
struct Accounts {
  std::vector<AccountEntry> told;

  /// Returns the first entry of this kind, or null.
  const AccountEntry* first_entry(std::string_view what) const;
  /// Returns the error that ended a process first, or null. If some processes have used a GPU, only
  /// theirs count: others may be helpers, whose failure the program has expected.
  const AccountEntry* first_error() const;
};

/// Reads a folder with a file for each process. Lines that make no sense, as of a process that was
/// killed while it wrote, are left out.
Accounts read_accounts(const std::filesystem::path& folder);

/// Says how the command ended.
struct CommandEnd {
  int exit_code = 0;     // 128 and more: the signal that ended it
  std::string how = {};  // if it was ended: "the command was ended by Killed"

  /// True if a signal ended it. A shell also reports this, as 128 and the signal's number.
  bool is_by_signal() const { return !how.empty() || (exit_code > 128 && exit_code <= 192); }
  /// True if it failed, crashed or was interrupted.
  bool is_failure() const { return exit_code != 0 || !how.empty(); }
};

/// Returns in one line why a command has left no recording. `is_attached` is true if it ran on the
/// GPUs of this machine.
std::string why_nothing(const Accounts& accounts, const CommandEnd& end,
                        const std::vector<std::string>& command, bool is_attached);

/// Returns how a command failed and why: "the program failed with exit code 1, ValueError: no data
/// (train.py:30)". Returns nothing if it did not fail.
Problem failure_text(const Accounts& accounts, const CommandEnd& end);

}  // namespace shardlens::profiler
