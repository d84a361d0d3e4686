// Declares the workspaces as LibTorch 2.9 does, without a lock: a thread that runs its first matrix
// product meanwhile may change a map that is being read. The recorder therefore asks between a
// program's steps.
#include "profiler/recorder/workspaces.h"

#include <c10/core/Allocator.h>

#include <map>
#include <tuple>

namespace at::cuda {
std::map<std::tuple<void*, void*>, at::DataPtr>& cublas_handle_stream_to_workspace();
std::map<std::tuple<void*, void*>, at::DataPtr>& cublaslt_handle_stream_to_workspace();
}  // namespace at::cuda

namespace shardlens::profiler {

void visit_workspaces(const std::function<void(const void* block)>& visit) {
  for (const auto* const workspaces : {&at::cuda::cublas_handle_stream_to_workspace(),
                                       &at::cuda::cublaslt_handle_stream_to_workspace()}) {
    for (const auto& [place, block] : *workspaces) visit(block.get());
  }
}

}  // namespace shardlens::profiler
