// The device of a rank: which of LibTorch's devices it is, what must be loaded for it, and what its
// memory was asked for.
//
// libtorch_cuda.so needs NVIDIA's libraries, which a machine without a GPU lacks, so nothing links
// it: it is loaded when a rank opens a CUDA device. On the null device those libraries are stubs
// that have to be there before LibTorch is (LD_PRELOAD), so the program starts itself once more.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/strategy.h"
#include "profiler/profile.h"
#include "runtime/comm/board.h"

namespace shardlens::runtime {

/// Throws std::runtime_error where the LibTorch that was loaded is of another version than the one
/// that this program, and the stubs of the null device, were built for.
void check_libtorch_version();

/// GPUs that CUDA can use here, asked of a child process: a process that has asked itself must not
/// fork afterwards. 0 where the driver is missing or refuses.
int count_gpus();

/// On a null device: does nothing if the stubs are loaded; else starts this program anew with them
/// and the same arguments, and does not return. Throws std::runtime_error where they are missing.
void enter_null_device(const planner::Device& device, const std::vector<std::string>& arguments);

/// For the calling process and thread; `index` is which of the GPUs. Loads what the device needs
/// and makes it current. Throws std::runtime_error in one line.
c10::Device open_device(const planner::Device& device, int index);

/// Which GPU of all there are. Throws std::runtime_error where CUDA does not say.
GpuUuid gpu_uuid(const c10::Device& device);

/// Makes cuBLAS take its workspaces now and under their own name, where LibTorch allocates them in
/// its first product on a stream and keeps them. Does nothing on the CPU.
void take_workspaces(const c10::Device& device);

/// Which of LibTorch's kernels attention may take, of this process: a word of --attention.
void choose_attention(const std::string& kernel);

/// Runs a thread's backward passes on that thread: autograd's own thread for a device would free
/// its last tensors after backward() has returned, so no two steps would allocate alike.
void keep_backward_on_this_thread();

/// What a recording says of the device: the GPU, its memory, versions.
void describe_device(const c10::Device& device, profiler::Header& header);

/// Of LibTorch's caching allocator, both peaks since the last reset.
struct MemoryPeak {
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
};

/// Nothing on the CPU, whose allocator does not count.
std::optional<MemoryPeak> memory_peak(const c10::Device& device);
void reset_memory_peak(const c10::Device& device);
/// How often the allocator gave its cache back to make room, each a stall; 0 on the CPU.
int64_t allocation_retries(const c10::Device& device);

}  // namespace shardlens::runtime
