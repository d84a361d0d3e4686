// The part of NCCL's C API that is used here, declared by ourselves and found when a program runs:
// machines that run or build this need neither NCCL's header nor, without a GPU, its library.
// tests/runtime/comm/nccl_header_test.cpp compares the declarations with the real header.
//
// LibTorch's CUDA library has loaded the very NCCL that it was built with before this asks for it.
#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <string>

struct CUstream_st;  // what a cudaStream_t points to

namespace shardlens::runtime {

struct NcclComm;  // what an ncclComm_t points to

struct NcclUniqueId {
  std::array<std::byte, 128> bytes{};
};

enum class NcclResult : int { success = 0, internal_error = 3, in_progress = 7 };
enum class NcclType : int { fp16 = 6, fp32 = 7, fp64 = 8, bf16 = 9 };
enum class NcclReduction : int { sum = 0, average = 4 };

/// ncclConfig_t of NCCL 2.18, which later versions accept: it says its own size.
struct NcclConfig {
  static constexpr int kUndefined = INT_MIN;

  size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef;
  unsigned version = 21800;
  int blocking = kUndefined;
  int cga_cluster_size = kUndefined;
  int min_ctas = kUndefined;
  int max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
};

struct NcclApi {
  using Comm = NcclComm*;
  using Stream = CUstream_st*;

  NcclResult (*get_version)(int* version);
  NcclResult (*get_unique_id)(NcclUniqueId* id);
  NcclResult (*comm_init_rank_config)(Comm* comm, int ranks, NcclUniqueId id, int rank,
                                      NcclConfig* config);
  NcclResult (*comm_get_async_error)(Comm comm, NcclResult* error);
  NcclResult (*comm_finalize)(Comm comm);
  NcclResult (*comm_destroy)(Comm comm);
  NcclResult (*comm_abort)(Comm comm);
  NcclResult (*all_gather)(const void* input, void* output, size_t input_numel, NcclType type,
                           Comm comm, Stream stream);
  NcclResult (*reduce_scatter)(const void* input, void* output, size_t output_numel, NcclType type,
                               NcclReduction reduction, Comm comm, Stream stream);
  NcclResult (*all_reduce)(const void* input, void* output, size_t numel, NcclType type,
                           NcclReduction reduction, Comm comm, Stream stream);
  NcclResult (*group_start)();
  NcclResult (*group_end)();
  const char* (*get_error_string)(NcclResult result);
  const char* (*get_last_error)(Comm comm);
};

/// Throws std::runtime_error where the library or one of the calls is missing.
NcclApi load_nccl(const char* library = "libnccl.so.2");

/// The library's calls, loaded once a process. Throws as load_nccl does, again at every call.
const NcclApi& nccl_api();

/// What a result means, and what the library has to add of its last error.
std::string to_text(const NcclApi& api, NcclResult result);

/// A new id, for one rank to make and the others to be told. Throws std::runtime_error.
NcclUniqueId new_nccl_id(const NcclApi& api);

}  // namespace shardlens::runtime
