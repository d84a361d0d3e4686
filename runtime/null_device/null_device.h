// The null device: stub NVIDIA libraries on which LibTorch's real CUDA code runs with no GPU.
//
// What is real: dispatch, autograd, the choice of kernels, the caching allocator, streams, events
// and pinned host memory as the host sees them. So every allocation is made and freed exactly as
// on the GPU that is named, of the size that it has there. What does nothing: kernels and
// collectives. Device addresses are made up and never dereferenced, and what a program copies from
// the device is zero. Time on the device is zero.
//
// How. CMakeLists.txt lists the sonames that LibTorch's libraries need from NVIDIA, each with the
// files that answer its meaningful calls; make_stubs.py reads from the wheel which symbols of
// which version it imports, and gives the others a weak stub that returns 0. As in NVIDIA's own
// stack the runtime (libcudart: device, memory, pinned, streams, launch) stands on the driver
// (libcuda: driver*), which owns the GPU and its memory; no other state is shared.
//
// Use. LD_PRELOAD all libraries of build/null_device: the wheel's libraries look into the NVIDIA
// wheels' folders first (DT_RPATH), and the ones of the runtime and CUPTI are there.
// SHARDLENS_NULL_GPU names the GPU (planner/gpus.h), h200 if not set; it is read once. Where the
// name is unknown, every call that needs the device fails, and cudaGetErrorString says why.
//
// To add a call: define it with its C name in the file whose noun it is, with the wheel's headers
// where they declare it; the definition replaces the stub. A call that would have to answer with
// what does not exist here (capture, IPC, memory pools) returns "not supported", never 0.
//
// Limits. One device a process, which is never busy. The context of a real driver and what NVIDIA's
// libraries allocate for themselves (about 0.5 GB) are not taken from the capacity, and addresses
// are never used twice. The sizes of workspaces that cuFFT, cuSOLVER, cuSPARSE and cuDNN would give
// are not known; no model here uses them.
#pragma once

#include <string_view>

namespace shardlens::runtime {

/// Everything that is shown to people and was made on the null device says so.
inline constexpr std::string_view kNullDeviceNotice = "null device: memory is real, values are not";

inline constexpr const char* kNullGpuVariable = "SHARDLENS_NULL_GPU";
inline constexpr const char* kNullGpuDefault = "h200";

}  // namespace shardlens::runtime
