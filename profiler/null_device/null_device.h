// The null device: stub NVIDIA libraries on which LibTorch's real CUDA code runs without a GPU.
//
// These are real: dispatch, autograd, the choice of kernels, the caching allocator, streams, events
// and pinned host memory as the host sees them. So every allocation is made and freed exactly as on
// the named GPU, with the same size. Kernels and collectives do nothing. Device addresses are made
// up and never dereferenced, and a program that copies from the device gets zeros (but see
// kNullKeepCopiesVariable). Any time that is measured on the device is 1 ms.
//
// How. CMakeLists.txt lists the sonames that LibTorch's libraries need from NVIDIA, each with the
// files that answer its meaningful calls. make_stubs.py reads from the wheel which symbols of which
// version it imports, and gives the others a weak stub that returns 0, or an error if the call asks
// how much memory is needed. As in NVIDIA's own stack the runtime (libcudart: cudart/) is built on
// the driver (libcuda: driver/), which owns the GPU, its memory and the checker. Both report their
// calls on memory to CUPTI (cupti*, api_observer.h); no other state is shared.
//
// Use. LD_PRELOAD all libraries of build/null_device: the wheel's libraries look into the NVIDIA
// wheels' folders first (DT_RPATH), which hold NVIDIA's runtime and CUPTI. SHARDLENS_NULL_GPU names
// the GPU (base/gpus.h), h200 if not set; SHARDLENS_NULL_CAPACITY overrides its memory size;
// SHARDLENS_NULL_GPUS says how many there are. All are read once. If one of them makes no sense,
// every call that needs the device fails, and cudaGetErrorString says why.
//
// CUPTI has one subscriber; the calls in api_observer.h invoke it on the calling thread. It makes
// records of the kind MEMORY2 for memory from cuMemAlloc and cuMemHostAlloc; mapped memory only
// shows in the callbacks. A driver call has the correlation id of the runtime call that made it.
// Every other domain, kind and setting is refused.
//
// With SHARDLENS_NULL_CHECK=1 the stubs report to a checker (check_feed.h) what orders streams and
// what touches memory. It finds uses that race or touch memory that does not exist (race_checker.h,
// which uses stream_order.h), and records NCCL's calls. A program reads the findings, and adds what
// only it knows, through null_checks.h. The stubs answer the same with and without it.
//
// To add a call: define it with its C name in the file named after its subject, with the wheel's
// headers if they declare it; the definition replaces the stub. A call that would have to answer
// with something that does not exist here (IPC, memory pools) returns "not supported",
// never 0.
//
// NVIDIA's own cuDNN plans here if a program has it: shardlens_null_cudnn (dnn_graph.h) makes the
// stub of cuDNN load it, from 9.26 on, and forward the graph API to it, with a description of the
// null device in place of a handle. cuDNN then chooses the kernels and their workspaces. The driver
// tells cuDNN's libraries that there is no device (cudnn_caller.h), their libraries and kernels
// load, and NVIDIA's own NVRTC compiles for them (shardlens_null_nvrtc); if one of these failed,
// cuDNN would silently take other kernels. Operations that its graphs do not cover (RNNs, CTC,
// batch norm) need a handle, and are errors.
//
// Memory beside PyTorch. A real driver's context and the memory that NVIDIA's libraries allocate
// for themselves are taken from the capacity as far as SHARDLENS_NULL_BESIDE says;
// `shardlens record` sets it to its estimate (outside_figures.h) and tells of each communicator.
//
// Limits. A process is meant to use one of several devices: they share one memory. No device is
// ever busy. Addresses are never reused. CUPTI only calls back for calls on memory, whatever is
// enabled; it hands a full buffer back on the thread that filled it; no record has a program
// counter or names a library. Workspaces of cuFFT, cuSOLVER and cuSPARSE are upper bounds
// (workspace_bounds.h); cuDNN's are unknown if cuDNN is not installed. cuDNN was not compared
// with a GPU; its choices by timing kernels (benchmark) cannot be known.
#pragma once

#include <cstdint>
#include <string_view>

namespace shardlens::profiler {

/// Text from the null device that is shown to people carries this notice.
inline constexpr std::string_view kNullDeviceNotice = "null device: memory is real, values are not";

inline constexpr const char* kNullGpuVariable = "SHARDLENS_NULL_GPU";
inline constexpr const char* kNullGpuDefault = "h200";

/// Overrides the GPU's bytes of device memory, as a whole number.
inline constexpr const char* kNullCapacityVariable = "SHARDLENS_NULL_CAPACITY";
inline constexpr int64_t kMostNullBytes = int64_t{1} << 40;

/// Says how many bytes of the device are in use beside PyTorch's allocator, as a whole number: what
/// a real driver's context and NVIDIA's libraries take. 0 if it is not set.
inline constexpr const char* kNullBesideVariable = "SHARDLENS_NULL_BESIDE";

/// If it is 1, shardlens_null_take_nccl takes what NCCL is estimated to take for a communicator.
inline constexpr const char* kNullNcclVariable = "SHARDLENS_NULL_NCCL";

/// Says how many GPUs there are, 1 to kMaxNullGpus; 1 if it is not set.
inline constexpr const char* kNullGpusVariable = "SHARDLENS_NULL_GPUS";
inline constexpr int kMaxNullGpus = 64;

/// Set by a program that has started itself again with the stubs preloaded.
inline constexpr const char* kNullDeviceEntered = "SHARDLENS_NULL_DEVICE";

/// A symbol that only the stubs have.
inline constexpr const char* kNullDeviceMark = "shardlens_null_checks";

/// If it is 1, values that can be known without computing on the device are returned from it
/// (known_memory.h), such as those that the host copied there or set. Else everything is zero.
inline constexpr const char* kNullKeepCopiesVariable = "SHARDLENS_NULL_KEEP_COPIES";

/// If it is 1 when a process starts, a trace of work can name the kernels that are launched
/// (work_feed.h).
inline constexpr const char* kNullWorkVariable = "SHARDLENS_NULL_WORK";

/// If it is 1 when a process starts, streams, memory and NCCL are checked (null_checks.h).
inline constexpr const char* kNullCheckVariable = "SHARDLENS_NULL_CHECK";

}  // namespace shardlens::profiler
