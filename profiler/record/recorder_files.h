// Provides the files that are loaded into a Python program, which depend on its PyTorch. The
// recorder for the PyTorch that Shardlens is built with is part of the build. A recorder for
// another is built from that PyTorch's own files when it is first needed (.setup/recorder), and
// kept in record/pytorch: a folder of the user's own with mode 0700, because its contents are
// loaded into the user's programs.
#pragma once

#include <filesystem>
#include <string>

#include "base/fault.h"
#include "profiler/record/python_program.h"

namespace shardlens::profiler {

struct RecordFiles {
  std::filesystem::path library;  // libshardlens_python.so; empty: PyTorch's history is recorded
  std::filesystem::path python;   // folder of sitecustomize.py
  std::filesystem::path stubs;    // folder of the null device's libraries; empty on a real GPU
  Problem doubt = {};  // without a library: what the recording lacks, why, and how to fix it
};

/// Says what answers LibTorch's CUDA calls.
enum class CudaProvider { gpu, null_device };

/// Returns the recorder for this PyTorch; `record` is the folder of that name (installation.h). A
/// recorder has to be built for every PyTorch except the build's own, and for that one if it makes
/// calls that the build's stubs lack, as another wheel of the version may. Finding that out takes a
/// fifth of a second, once for each wheel. Building takes a minute or more, which a line on stderr
/// says; processes that want the same recorder meanwhile wait for it.
///
/// If the recorder cannot be built, or if somebody other than the user (in an installation: other
/// than its owner) may have written it, PyTorch's own memory history is recorded without it. The
/// stubs then have every call that this PyTorch makes: they are the build's, or those of a kept
/// recorder.
///
/// Throws std::invalid_argument if this PyTorch cannot be recorded or no stubs have all of its
/// calls, std::runtime_error if files are missing.
RecordFiles recorder_for(const PythonProgram& program, const std::filesystem::path& record,
                         CudaProvider answers = CudaProvider::null_device);

}  // namespace shardlens::profiler
