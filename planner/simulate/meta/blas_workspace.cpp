#include "planner/simulate/meta/blas_workspace.h"

#include <memory>

namespace shardlens::planner::meta {

namespace {

using models::BlasWorkspaces;

constexpr int64_t kKiB = 1024, kMiB = 1024 * kKiB;
constexpr int64_t kLtBytes = kMiB;

/// Models getChosenWorkspaceSize in LibTorch's cuda/CublasHandlePool.cpp: ":4096:2:16:8" of
/// cuBLAS's documentation, in KiB, or 32 MiB on GPUs whose tensor cores want more.
int64_t cublas_bytes(const Context& context) {
  const int generation = context.gpu->capability.major;
  const bool is_large =
      generation == 9 || (generation >= 10 && context.torch->large_blackwell_workspace);
  return is_large ? 32 * kMiB : (4096 * 2 + 16 * 8) * kKiB;
}

void take_once(Context& context, std::shared_ptr<Storage>& kept, int64_t bytes) {
  if (!kept) kept = std::make_shared<Storage>(*context.memory, bytes);
}

void take_and_give_back(Context& context, int64_t bytes) { Storage(*context.memory, bytes); }

}  // namespace

void take_blas_workspace(Context& context, BlasLibrary library) {
  if (!context.is_cuda()) return;
  const bool is_lt = library == BlasLibrary::cublas_lt;
  const BlasWorkspaces kind = context.torch->blas_workspaces;
  if (kind == BlasWorkspaces::by_product) {
    return take_and_give_back(context, is_lt ? kLtBytes : cublas_bytes(context));
  }
  KeptWorkspaces& kept = context.workspaces;
  take_once(context, context.is_autograd_thread ? kept.autograd_thread : kept.main_thread,
            cublas_bytes(context));
  if (is_lt && kind == BlasWorkspaces::separate) take_once(context, kept.cublas_lt, kLtBytes);
}

}  // namespace shardlens::planner::meta
