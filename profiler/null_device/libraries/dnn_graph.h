// Lets NVIDIA's own cuDNN answer the calls of its graph API if the program's environment has it:
// which kernels there are, which one it would take, and how much workspace that needs.
//
// cuDNN plans for a device that is described to it (from 9.8 on) as well as for one that it has a
// handle of. The null device has no handle that cuDNN would accept, so we leave handles out and
// pass the description instead. Nothing is executed.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shardlens::profiler {

/// Mirrors cudnnBackendDescriptor_t.
using DnnDescriptor = void*;

/// Holds the functions of libcudnn_graph that calls are forwarded to; null if it lacks one.
struct DnnGraph {
  int (*create)(int, DnnDescriptor*) = nullptr;
  int (*destroy)(DnnDescriptor) = nullptr;
  int (*set)(DnnDescriptor, int, int, int64_t, const void*) = nullptr;
  int (*get)(DnnDescriptor, int, int, int64_t, int64_t*, void*) = nullptr;
  int (*finalize)(DnnDescriptor) = nullptr;
  size_t (*version)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  void (*last_error_string)(char*, size_t) = nullptr;
  DnnDescriptor device = nullptr;  // the description of the null device
};

/// Returns null until `shardlens_null_cudnn` has found cuDNN.
const DnnGraph* dnn_graph();

}  // namespace shardlens::profiler

extern "C" {
/// Makes the libcudnn_graph at this path answer from now on; only the first call counts. Returns
/// "", or why it cannot: then cuDNN's graphs are not supported.
const char* shardlens_null_cudnn(const char* path);

/// Returns "", or the first error with which cuDNN gave up a kernel that it may take on a GPU: then
/// its choices here are in doubt.
const char* shardlens_null_cudnn_fault();
}
