// Provides what is loaded into a Python program, which depends on its PyTorch. The recorder for the
// one that Shardlens is built with is part of the build. A recorder for another is built from that
// PyTorch's own files when it is first asked for (.setup/recorder), and kept in record/pytorch: a
// folder of the user's own with mode 0700, since what it holds is loaded into the user's programs.
#pragma once

#include <filesystem>
#include <string>

#include "base/fault.h"
#include "profiler/record/python_program.h"

namespace shardlens::profiler {

struct RecordFiles {
  std::filesystem::path library;  // libshardlens_python.so; empty: PyTorch's history is recorded
  std::filesystem::path python;   // sitecustomize.py is in it
  std::filesystem::path stubs;  // folder of the null device's libraries; empty where a GPU answers
  Problem doubt = {};  // without a library: what the recording lacks, why, and how to fix it
};

/// Says who answers LibTorch's calls of CUDA.
enum class CudaProvider { gpu, null_device };

/// Returns the recorder for this PyTorch; `record` is the folder of that name (installation.h). A
/// recorder has to be built for every PyTorch but that of the build, and for that one if it calls
/// what the build's stubs lack, as another wheel of the version may; to find that out takes a fifth
/// of a second, once a wheel. To build it takes a minute or more, which a line on stderr says;
/// others that want the same one meanwhile wait for it.
///
/// If it cannot be built, or if others than the user (in an installation: than who has installed
/// it) can have put it there, PyTorch's own memory history is recorded without it. The stubs then
/// lack nothing of what this PyTorch calls: they are the build's, or those of a recorder that is
/// kept.
///
/// Throws std::invalid_argument if this PyTorch is one that cannot be recorded, or no stubs serve
/// it, std::runtime_error if files are missing.
RecordFiles recorder_for(const PythonProgram& program, const std::filesystem::path& record,
                         CudaProvider answers = CudaProvider::null_device);

}  // namespace shardlens::profiler
