// Finds the Python that a command will run, and that Python's PyTorch, without importing PyTorch.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace shardlens::profiler {

struct PythonProgram {
  std::string interpreter;
  std::filesystem::path torch;  // the package's folder
  std::string torch_version;    // "2.11.0+cu130"
  std::string cuda_version;     // "13.0", "ROCm" or "none"
  /// Tells builds of PyTorch apart by their libraries and headers: a hash of their lines in pip's
  /// RECORD. conda's PyTorch, an editable install and a build from source have no RECORD; the hash
  /// is then of the folder, and of each file's name, size and modification time.
  std::string wheel;
};

/// Returns the file of a command as a shell finds it; nothing if there is none that can be run.
std::optional<std::filesystem::path> find_program(const std::string& name);

/// Asks the interpreter that the command starts with or that its first line names, else `python3`.
/// Throws std::invalid_argument if there is no such command, no Python or no PyTorch.
PythonProgram find_python(const std::vector<std::string>& command);

/// Returns the flag of the command's Python, or of the first line of its script, that keeps
/// `shardlens record` from loading anything, as -I, -E and -S do: "-I" of "python -Iu train.py".
/// Returns "" if there is none.
std::string isolating_flag(const std::vector<std::string>& command);

/// Throws std::invalid_argument if this PyTorch cannot be recorded, because it is not built for
/// CUDA.
void check_pytorch(const PythonProgram& program);

/// Returns a line saying that recordings are in doubt if `shardlens record` was not tried with this
/// PyTorch; no line if it was.
std::vector<std::string> doubts_of(const PythonProgram& program);

}  // namespace shardlens::profiler
