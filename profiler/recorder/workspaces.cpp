// Declares the workspaces as LibTorch 2.10 and later do.
#include "profiler/recorder/workspaces.h"

#include <c10/core/Allocator.h>

#include <map>
#include <mutex>
#include <shared_mutex>
#include <tuple>

namespace at::cuda {
struct WorkspaceMapWithMutex {
  std::map<std::tuple<void*, void*>, at::DataPtr> map;
  std::shared_mutex mutex;
};
WorkspaceMapWithMutex& cublas_handle_stream_to_workspace();
WorkspaceMapWithMutex& cublaslt_handle_stream_to_workspace();
}  // namespace at::cuda

namespace shardlens::profiler {

void visit_workspaces(const std::function<void(const void* block)>& visit) {
  for (auto* const workspaces : {&at::cuda::cublas_handle_stream_to_workspace(),
                                 &at::cuda::cublaslt_handle_stream_to_workspace()}) {
    const std::shared_lock lock(workspaces->mutex);
    for (const auto& [place, block] : workspaces->map) visit(block.get());
  }
}

}  // namespace shardlens::profiler
