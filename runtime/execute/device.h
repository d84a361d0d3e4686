// A rank's device: finds it in LibTorch, loads the libraries that it needs, and reports the memory
// that was requested from it.
//
// libtorch_cuda.so needs NVIDIA's libraries, which a machine without a GPU lacks, so nothing links
// it: it is loaded when a rank opens a CUDA device. On the null device those libraries are stubs
// that must be loaded before LibTorch (LD_PRELOAD), so the program restarts itself.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"
#include "planner/config/choices.h"
#include "profiler/recording/profile.h"
#include "runtime/comm/board/board.h"

namespace shardlens::runtime {

/// Throws std::runtime_error if the loaded LibTorch is not the version that this program, and the
/// stubs of the null device, were built for.
void check_libtorch_version();

/// Returns how many GPUs CUDA can use here, or 0 if the driver is missing or refuses. A child
/// process asks, because a process that has asked CUDA must not fork afterwards.
int count_gpus();

/// Enters the null device `device`: if the stubs are not loaded, restarts this program with them
/// and the same arguments, and does not return; else does nothing. Throws std::runtime_error if the
/// stubs are missing, or belong to another program.
void enter_null_device(const Device& device, const std::vector<std::string>& arguments);

/// Opens a device for the calling process and thread: loads its libraries and makes it current.
/// `index` says which GPU. Throws std::runtime_error with one line.
c10::Device open_device(const Device& device, int index);

/// Returns the GPU's UUID, which identifies it. Throws std::runtime_error if CUDA does not report
/// one.
GpuUuid gpu_uuid(const c10::Device& device);

/// Makes cuBLAS allocate its workspaces now, under their own name. Otherwise LibTorch would
/// allocate them in its first product on a stream, and keep them. Does nothing on the CPU.
void take_workspaces(const c10::Device& device);

/// Sets which of LibTorch's kernels attention may use in this process.
void choose_attention(planner::AttentionChoice choice);

/// Runs a thread's backward passes on that thread. Autograd's own thread for a device would free
/// its last tensors after backward() has returned, so no two steps would allocate alike.
void keep_backward_on_this_thread();

/// Writes what a recording says about the device into `header`: the GPU, its memory, versions.
void describe_device(const c10::Device& device, profiler::Header& header);

/// Holds the peaks of LibTorch's caching allocator since the last reset.
struct MemoryPeak {
  int64_t allocated_bytes = 0;
  int64_t reserved_bytes = 0;
};

/// Returns nothing on the CPU, whose allocator does not count.
std::optional<MemoryPeak> memory_peak(const c10::Device& device);
void reset_memory_peak(const c10::Device& device);
/// Returns how often the allocator freed its cache to make room, each time a stall; 0 on the CPU.
int64_t allocation_retries(const c10::Device& device);

}  // namespace shardlens::runtime
