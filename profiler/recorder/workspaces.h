// Finds the blocks that LibTorch has given to cuBLAS as workspaces. The header that declares them,
// ATen/cuda/CUDAContextLight.h, includes cuBLAS's header, which not every machine has, so each .cpp
// file declares them as some versions of LibTorch do. CMake chooses the file that agrees with the
// header.
#pragma once

#include <functional>

namespace shardlens::profiler {

/// Calls `visit` with each of these blocks, which stay in place until the program ends.
void visit_workspaces(const std::function<void(const void* block)>& visit);

}  // namespace shardlens::profiler
