// The null device: stub NVIDIA libraries on which LibTorch's real CUDA code runs with no GPU.
//
// What is real: dispatch, autograd, the choice of kernels, the caching allocator, streams, events
// and pinned host memory as the host sees them. So every allocation is made and freed exactly as
// on the GPU that is named, of the size that it has there. What does nothing: kernels and
// collectives. Device addresses are made up and never dereferenced, and what a program copies from
// the device is zero (but see kNullKeepCopiesVariable). What is timed on the device takes 1 ms.
//
// How. CMakeLists.txt lists the sonames that LibTorch's libraries need from NVIDIA, each with the
// files that answer its meaningful calls; make_stubs.py reads from the wheel which symbols of
// which version it imports, and gives the others a weak stub that returns 0, or an error where it
// is asked how much memory is needed. As in NVIDIA's own stack the runtime (libcudart: device,
// memory, pinned, streams, graphs, launch) stands on the driver (libcuda: driver*), which owns the
// GPU, its memory and the checker, and CUPTI (cupti*) is told by both of their calls on memory
// (api_observer.h); no other state is shared.
//
// Use. LD_PRELOAD all libraries of build/null_device: the wheel's libraries look into the NVIDIA
// wheels' folders first (DT_RPATH), and the ones of the runtime and CUPTI are there.
// SHARDLENS_NULL_GPU names the GPU (planner/gpus.h), h200 if not set, SHARDLENS_NULL_CAPACITY
// its memory where that is to be another, and SHARDLENS_NULL_GPUS how many there are; all are read
// once. Where one of them makes no sense, every call that needs the device fails, and
// cudaGetErrorString says why.
//
// CUPTI has one subscriber, whom the calls in api_observer.h call back (their own threads do so),
// and records of the kind MEMORY2 for what cuMemAlloc and cuMemHostAlloc gave; mapped memory shows
// in the callbacks only. A call of the driver has the correlation id of the runtime's call that
// made it. Every other domain, kind and setting is refused.
//
// With SHARDLENS_NULL_CHECK=1 the stubs tell what orders streams and what touches memory to a
// checker (check_feed.h), which finds uses that race or touch memory that is not there
// (race_checker.h, on stream_order.h), and NCCL's calls are recorded. A program reads what was
// found, and adds what only it knows, by null_checks.h. Nothing that is answered changes.
//
// To add a call: define it with its C name in the file whose noun it is, with the wheel's headers
// where they declare it; the definition replaces the stub. A call that would have to answer with
// what does not exist here (capture, IPC, memory pools) returns "not supported", never 0.
//
// Limits. Of several devices a process is meant to use one: they have one memory between them. No
// device is ever busy. The context of a real driver and what NVIDIA's
// libraries allocate for themselves (about 0.5 GB) are not taken from the capacity, and addresses
// are never used twice. CUPTI calls back for no call but those on memory, whatever is enabled; it
// hands a full buffer back on the thread that filled it; no record has a program counter or names a
// library. The sizes of workspaces that cuFFT, cuSOLVER, cuSPARSE and cuDNN would give are not
// known; no model here uses them.
#pragma once

#include <string_view>

namespace shardlens::runtime {

/// Everything that is shown to people and was made on the null device says so.
inline constexpr std::string_view kNullDeviceNotice = "null device: memory is real, values are not";

inline constexpr const char* kNullGpuVariable = "SHARDLENS_NULL_GPU";
inline constexpr const char* kNullGpuDefault = "h200";

/// Whole bytes of device memory, where it is not to be that of the GPU.
inline constexpr const char* kNullCapacityVariable = "SHARDLENS_NULL_CAPACITY";

/// How many GPUs there are, 1 to kMaxNullGpus; 1 where it is not set.
inline constexpr const char* kNullGpusVariable = "SHARDLENS_NULL_GPUS";
inline constexpr int kMaxNullGpus = 64;

/// Set by a program that has started itself anew with the stubs preloaded.
inline constexpr const char* kNullDeviceEntered = "SHARDLENS_NULL_DEVICE";

/// A symbol that only the stubs have.
inline constexpr const char* kNullDeviceMark = "shardlens_null_checks";

/// Where it is 1, what the host copies to the device and back before any kernel is launched comes
/// back (kept_copies.h); else it is zero, too.
inline constexpr const char* kNullKeepCopiesVariable = "SHARDLENS_NULL_KEEP_COPIES";

/// Where it is 1 when a process starts, streams, memory and NCCL are checked (null_checks.h).
inline constexpr const char* kNullCheckVariable = "SHARDLENS_NULL_CHECK";

}  // namespace shardlens::runtime
