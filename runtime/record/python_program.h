// Which Python a command will run, and which PyTorch that has. Nothing of it is imported.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace shardlens::runtime {

struct PythonProgram {
  std::string interpreter;
  std::filesystem::path torch;  // the package's folder
  std::string torch_version;    // "2.11.0+cu130"
  std::string cuda_version;     // "13.0", "ROCm" or "none"
  /// Tells builds of PyTorch apart by their libraries and headers: a hash of what pip's RECORD says
  /// of them. conda's, an editable one and a build of one's own have none there; of these it is of
  /// the folder, and of each file's name, size and time of change.
  std::string wheel;
};

/// Asks the interpreter that the command starts with or that its first line names, else `python3`.
/// Throws std::invalid_argument where there is no such command, no Python or no PyTorch.
PythonProgram find_python(const std::vector<std::string>& command);

/// The flag by which the command's Python, or the first line of its script, shuts out what
/// `shardlens record` loads, as -I, -E and -S do: "-I" of "python -Iu train.py". Empty: none.
std::string isolating_flag(const std::vector<std::string>& command);

/// Throws std::invalid_argument where this PyTorch cannot be recorded: it is not built for CUDA.
void check_pytorch(const PythonProgram& program);

/// Recordings of a PyTorch that `shardlens record` was not tried with are in doubt: says so in a
/// line. Empty for one that it was tried with.
std::vector<std::string> doubts_of(const PythonProgram& program);

}  // namespace shardlens::runtime
