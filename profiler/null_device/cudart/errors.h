// Keeps the error of a thread's last failed runtime call, for cudaGetLastError. Every runtime call
// that can fail returns through `result`.
#pragma once

#include <cuda.h>
#include <driver_types.h>

namespace shardlens::profiler {

/// Remembers an error for the calling thread, and returns it.
cudaError_t result(cudaError_t error);

/// Translates the driver's error into the runtime's, remembers it, and returns it.
cudaError_t result(CUresult error);

}  // namespace shardlens::profiler
