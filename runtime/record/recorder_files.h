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

/// The recorder for this PyTorch; `record` is the folder of that name (installation.h). Where it
/// has to be built, a line on stderr says so, and a minute or more goes by; others that want the
/// same one meanwhile wait for it. Throws std::invalid_argument where this PyTorch is none that is
/// recorded, or cannot be here, or where others than the user (of an installation: than who has
/// installed it) can have put it there, std::runtime_error where files are missing or the build
/// fails.
RecordFiles recorder_for(const PythonProgram& program, const std::filesystem::path& record);

/// Of a program on a null device: throws std::invalid_argument where its PyTorch calls what the
/// stubs lack, as another wheel of the version may. Takes half a second, once a wheel; stubs that
/// were made of this very wheel are not asked.
void check_stubs(const PythonProgram& program, const std::filesystem::path& stubs,
                 const std::filesystem::path& record);

}  // namespace shardlens::runtime
