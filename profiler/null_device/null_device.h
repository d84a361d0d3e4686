// The null device: stub NVIDIA libraries on which LibTorch's real CUDA code runs with no GPU.
//
// What is real: dispatch, autograd, the choice of kernels, the caching allocator, streams, events
// and pinned host memory as the host sees them. So every allocation is made and freed exactly as on
// the GPU that is named, of the size that it has there. What does nothing: kernels and collectives.
// Device addresses are made up and never dereferenced, and what a program copies from the device is
// zero (but see kNullKeepCopiesVariable). Any time that is measured on the device is 1 ms.
//
// How. CMakeLists.txt lists the sonames that LibTorch's libraries need from NVIDIA, each with the
// files that answer its meaningful calls. make_stubs.py reads from the wheel which symbols of which
// version it imports, and gives the others a weak stub that returns 0, or an error if the call asks
// how much memory is needed. As in NVIDIA's own stack the runtime (libcudart: device, memory,
// pinned, streams, graphs, launch) stands on the driver (libcuda: driver*), which owns the GPU, its
// memory and the checker. Both report their calls on memory to CUPTI (cupti*, api_observer.h); no
// other state is shared.
//
// Use. LD_PRELOAD all libraries of build/null_device: the wheel's libraries look into the NVIDIA
// wheels' folders first (DT_RPATH), and the runtime and CUPTI of NVIDIA are there.
// SHARDLENS_NULL_GPU names the GPU (base/gpus.h), h200 if not set; SHARDLENS_NULL_CAPACITY gives
// its memory if that is to differ; SHARDLENS_NULL_GPUS says how many there are. All are read once.
// If one of them makes no sense, every call that needs the device fails, and cudaGetErrorString
// says why.
//
// CUPTI has one subscriber, whom the calls in api_observer.h call back on their own threads. It
// makes records of the kind MEMORY2 for what cuMemAlloc and cuMemHostAlloc gave; mapped memory
// shows in the callbacks only. A call of the driver has the correlation id of the runtime's call
// that made it. Every other domain, kind and setting is refused.
//
// With SHARDLENS_NULL_CHECK=1 the stubs tell a checker (check_feed.h) what orders streams and what
// touches memory. It finds uses that race or touch memory that does not exist (race_checker.h, on
// stream_order.h), and records NCCL's calls. A program reads the findings, and adds what only it
// knows, by null_checks.h. The stubs' answers are the same as without it.
//
// To add a call: define it with its C name in the file whose noun it is, with the wheel's headers
// if they declare it; the definition replaces the stub. A call that would have to answer with
// something that does not exist here (capture, IPC, memory pools) returns "not supported", never 0.
//
// NVIDIA's own cuDNN plans here, where a program has it: shardlens_null_cudnn (dnn_graph.h) lets
// the stub of cuDNN load it, from 9.26 on, and forward the graph API to it, with a description of
// the null device where a handle would be. Which kernels are taken and what workspaces they want is
// then cuDNN's choice. To cuDNN's libraries the driver says that there is no device
// (cudnn_caller.h), libraries and kernels load, and what it compiles is compiled by NVIDIA's own
// NVRTC (shardlens_null_nvrtc); where one of these failed, cuDNN would silently take other kernels.
// What its graphs do not tell (RNNs, CTC, batch norm) needs a handle, and is an error.
//
// Limits. A process is meant to use one of several devices: they have one memory between them.
// No device is ever busy. The context of a real driver and what NVIDIA's libraries allocate for
// themselves (about 0.5 GB) are not taken from the capacity, and addresses are never used twice.
// CUPTI calls back for no call but those on memory, whatever is enabled; it hands a full buffer
// back on the thread that filled it; no record has a program counter or names a library.
// Workspaces of cuFFT, cuSOLVER and cuSPARSE are upper bounds (workspace_bounds.h); cuDNN's are
// not known where it is not there. cuDNN was not compared with a GPU; what it would take by
// timing kernels (benchmark) cannot be known.
#pragma once

#include <string_view>

namespace shardlens::profiler {

/// Text that is shown to people and was made on the null device carries this notice.
inline constexpr std::string_view kNullDeviceNotice = "null device: memory is real, values are not";

inline constexpr const char* kNullGpuVariable = "SHARDLENS_NULL_GPU";
inline constexpr const char* kNullGpuDefault = "h200";

/// Gives the bytes of device memory, a whole number, if they are not to be those of the GPU.
inline constexpr const char* kNullCapacityVariable = "SHARDLENS_NULL_CAPACITY";

/// Says how many GPUs there are, 1 to kMaxNullGpus; 1 if it is not set.
inline constexpr const char* kNullGpusVariable = "SHARDLENS_NULL_GPUS";
inline constexpr int kMaxNullGpus = 64;

/// Is set by a program that has started itself anew with the stubs preloaded.
inline constexpr const char* kNullDeviceEntered = "SHARDLENS_NULL_DEVICE";

/// A symbol that only the stubs have.
inline constexpr const char* kNullDeviceMark = "shardlens_null_checks";

/// If it is 1, values that can be known without computing on the device come back from it
/// (known_memory.h): what the host copied there, what was set. Else everything is zero.
inline constexpr const char* kNullKeepCopiesVariable = "SHARDLENS_NULL_KEEP_COPIES";

/// If it is 1 when a process starts, streams, memory and NCCL are checked (null_checks.h).
inline constexpr const char* kNullCheckVariable = "SHARDLENS_NULL_CHECK";

}  // namespace shardlens::profiler
