// What is loaded into a Python program, which depends on its PyTorch. The recorder for the one that
// Shardlens is built with is part of the build; one for another is built from that PyTorch's own
// files when it is first asked for (.setup/recorder), and kept in record/pytorch: a folder of the
// user's own with mode 0700, since what it holds is loaded into the user's programs.
#pragma once

#include <filesystem>

#include "runtime/record/python_program.h"

namespace shardlens::runtime {

struct RecordFiles {
  std::filesystem::path library;  // libshardlens_python.so
  std::filesystem::path python;   // sitecustomize.py is in it
  std::filesystem::path stubs;    // folder of the null device's libraries
};

/// Who answers LibTorch's calls of CUDA.
enum class Answers { gpu, null_device };

/// The recorder for this PyTorch; `record` is the folder of that name (installation.h). Where it
/// has to be built, a line on stderr says so, and a minute or more goes by; others that want the
/// same one meanwhile wait for it. It has to be for every PyTorch but that of the build, and for
/// that one where it calls what the build's stubs lack, as another wheel of the version may; it
/// takes half a second to see, once a wheel. Throws std::invalid_argument where this PyTorch is
/// none that is recorded, or cannot be here, or where others than the user (of an installation:
/// than who has installed it) can have put it there, std::runtime_error where files are missing or
/// the build fails.
RecordFiles recorder_for(const PythonProgram& program, const std::filesystem::path& record,
                         Answers answers = Answers::null_device);

}  // namespace shardlens::runtime
