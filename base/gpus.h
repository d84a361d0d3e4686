// The GPUs that are known by name, with the properties that a plan or a null device needs. The
// planner, the runtime's null device and the viewer use them.
//
// Numbers are those that a program sees through the driver (cudaGetDeviceProperties), so memory is
// somewhat less than on the data sheet: the driver keeps a part. It differs between drivers by a
// few MiB, for the same reason.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace shardlens {

/// The properties that all GPUs of one compute capability share.
struct ComputeCapability {
  int major = 0;
  int minor = 0;
  int64_t shared_memory_per_sm_bytes = 0;
  int64_t shared_memory_per_block_opt_in_bytes = 0;
  int max_threads_per_sm = 0;
  int max_blocks_per_sm = 0;
};

struct Gpu {
  std::string_view name;          // as in --gpu and null:NAME
  std::string_view display_name;  // as the driver gives it
  ComputeCapability capability;
  int sm_count = 0;
  int64_t memory_bytes = 0;
  int64_t l2_bytes = 0;
  bool has_nvlink = false;  // among all GPUs of a node
};

/// The number of GPUs in one machine.
constexpr int kGpusANode = 8;

/// Lists the known GPUs, the newest generation of data centre GPUs first.
std::span<const Gpu> gpus();

/// Finds a GPU by its name. Throws std::invalid_argument with all names, and the one that was most
/// likely meant.
const Gpu& find_gpu(std::string_view name);

/// Returns the GPU that the driver calls so; null if it is not known.
const Gpu* find_displayed_gpu(std::string_view display_name);

}  // namespace shardlens
