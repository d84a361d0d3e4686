// How far the Python processes of a command came, as each has told by itself
// (record/python/shardlens_record/account.py), and why nothing was recorded, where nothing was.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace shardlens::runtime {

/// What a process has said, and when.
struct Told {
  int process = 0;
  double time_s = 0;
  /// "started": Python runs, with the recorder; text: the interpreter. "no_script", "no_module":
  /// what Python was to run is not there. "torch": it has been imported. "gpu": CUDA was
  /// initialised. "refused": why there is no recording. "import_error", "raised": what ended the
  /// process, and where. "out_of_memory": what of a GPU could not be had.
  std::string what = {};
  std::string text = {};
};

/// By time.
struct Accounts {
  std::vector<Told> told;

  /// The first of these, or null.
  const Told* first(std::string_view what) const;
  /// The error that ended a process first, or null. Where some have used a GPU, only theirs count:
  /// others may be helpers, whose failure the program has expected.
  const Told* first_error() const;
};

/// Of a folder with a file for each process. Lines that make no sense, as of a process that was
/// killed while it wrote, are left out.
Accounts read_accounts(const std::filesystem::path& folder);

/// How the command ended.
struct CommandEnd {
  int exit_code = 0;     // 128 and more: the signal that ended it
  std::string how = {};  // where it did not end by itself: "the command was ended by Killed"

  /// A shell says 128 and the signal, too.
  bool is_by_signal() const { return !how.empty() || (exit_code > 128 && exit_code <= 192); }
  /// It failed, crashed or was interrupted.
  bool is_failure() const { return exit_code != 0 || !how.empty(); }
};

/// The cause in a line, where a command has left no recording. `is_attached`: to the GPUs of this
/// machine.
std::string why_nothing(const Accounts& accounts, const CommandEnd& end,
                        const std::vector<std::string>& command, bool is_attached);

/// How a command failed and of what: "failed with exit code 1, ValueError: no data (train.py:30)".
/// Empty where it did not.
std::string failure_text(const Accounts& accounts, const CommandEnd& end);

}  // namespace shardlens::runtime
