// The blocks that LibTorch has given to cuBLAS to work in. The header that declares them,
// ATen/cuda/CUDAContextLight.h, includes cuBLAS's, which not every machine has, so each file
// declares them as some versions of LibTorch do. CMake takes the one that says what the header
// says.
#pragma once

#include <functional>

namespace shardlens::profiler {

/// The blocks stay where they are, on the current device, until the program ends.
void visit_workspaces(const std::function<void(const void* block)>& visit);

}  // namespace shardlens::profiler
