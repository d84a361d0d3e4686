// Plans a Python program by running it: `shardlens plan --engine pytorch` becomes `shardlens
// record`, `solve`, `sweep` or `advise` of the program train.py beside this file, with the plan's
// flags.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace shardlens::planner {

/// Holds what a plan by running comes to: a command, or a program to write.
struct RunningPlan {
  /// A command of ours: {"record", "--device", "null:h100", ..., "--", "python", "train.py", ...}
  std::vector<std::string> command;
  std::string json_of;  // the recording whose report is printed as JSON; empty: none is
  std::string write;    // file for the program; empty: it is run
  std::string program;  // its text, with the given settings as defaults
};

/// True if the flags have --engine pytorch, or pytorch-fsdp2, another word for it.
bool plans_by_running(const std::vector<std::string>& arguments);

/// Parses the plan's flags. `program` is train.py, whose SETTINGS are flags, too. Throws
/// std::invalid_argument.
RunningPlan plan_by_running(const std::vector<std::string>& arguments,
                            const std::filesystem::path& program);

std::string running_help(const std::filesystem::path& program);

}  // namespace shardlens::planner
