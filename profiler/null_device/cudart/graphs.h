// Knows which streams are captured into a CUDA graph. Only used inside libcudart.
#pragma once

#include <driver_types.h>

#include <cstdint>

namespace shardlens::profiler {

/// Returns the capture that the stream is part of; 0: none.
uint64_t capture_of(cudaStream_t stream);

/// True while any stream is part of a capture.
bool is_any_captured();

// These follow CUDA: a stream that waits for an event of a capture becomes part of the capture.
void capture_event(cudaEvent_t event, cudaStream_t stream);
void capture_wait(cudaStream_t stream, cudaEvent_t event);

}  // namespace shardlens::profiler
