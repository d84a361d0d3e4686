// Declares the part of NCCL's C API that is used here. Its functions are found when a program runs,
// so machines that build this need no NCCL header, and machines without a GPU no NCCL library.
// tests/runtime/comm/nccl_header_test.cpp compares the declarations with the real header.
//
// By the time this looks for NCCL, LibTorch's CUDA library has loaded the NCCL that it was built
// with.
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

/// Mirrors ncclConfig_t of NCCL 2.18. Later versions accept it, because it states its own size.
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

/// Loads the library and finds its functions. Throws std::runtime_error if the library or a
/// function is missing.
NcclApi load_nccl(const char* library = "libnccl.so.2");

/// Returns the library's functions, loaded once per process. Throws as load_nccl does, at every
/// call.
const NcclApi& nccl_api();

/// Returns what a result means, and what the library adds about its last error.
std::string to_text(const NcclApi& api, NcclResult result);

/// Returns a new id, which one rank makes and tells the others. Throws std::runtime_error.
NcclUniqueId new_nccl_id(const NcclApi& api);

}  // namespace shardlens::runtime
