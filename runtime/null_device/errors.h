// The error that a thread's last runtime call left, as cudaGetLastError gives it. Every runtime
// call that can fail returns through `result`.
#pragma once

#include <cuda.h>
#include <driver_types.h>

namespace shardlens::runtime {

/// Remembers an error for the calling thread, and returns it.
cudaError_t result(cudaError_t error);

/// A driver's answer in the runtime's words.
cudaError_t result(CUresult error);

}  // namespace shardlens::runtime
