// Compares our declarations of NCCL's C API with the real header, if there is one.
#include <nccl.h>

#include <catch2/catch_test_macros.hpp>
#include <cstddef>
#include <type_traits>

#include "runtime/comm/device/nccl_api.h"

namespace {

using namespace shardlens;
using namespace shardlens::runtime;

template <class Ours, class Theirs>
constexpr bool is_same(Ours ours, Theirs theirs) {
  return static_cast<int>(ours) == static_cast<int>(theirs);
}

// The functions have the expected parameters, by size and place: enums for enums and opaque
// pointers for opaque pointers.
template <class Type>
using PlainType = std::conditional_t<
    std::is_enum_v<Type> || std::is_pointer_v<Type>, std::integral_constant<size_t, sizeof(Type)>,
    std::conditional_t<std::is_class_v<Type>, std::integral_constant<size_t, sizeof(Type)>, Type>>;

template <class Function>
struct Shape;
template <class Result, class... Parameters>
struct Shape<Result (*)(Parameters...)> {
  using type = PlainType<Result> (*)(PlainType<Parameters>...);
};

template <class Ours, class Theirs>
constexpr bool same_shape =
    std::is_same_v<typename Shape<Ours>::type, typename Shape<Theirs>::type>;

static_assert(sizeof(NcclUniqueId) == sizeof(ncclUniqueId));
static_assert(std::is_trivially_copyable_v<NcclUniqueId>);

static_assert(offsetof(NcclConfig, size) == offsetof(ncclConfig_t, size));
static_assert(offsetof(NcclConfig, magic) == offsetof(ncclConfig_t, magic));
static_assert(offsetof(NcclConfig, version) == offsetof(ncclConfig_t, version));
static_assert(offsetof(NcclConfig, blocking) == offsetof(ncclConfig_t, blocking));
static_assert(offsetof(NcclConfig, cga_cluster_size) == offsetof(ncclConfig_t, cgaClusterSize));
static_assert(offsetof(NcclConfig, min_ctas) == offsetof(ncclConfig_t, minCTAs));
static_assert(offsetof(NcclConfig, max_ctas) == offsetof(ncclConfig_t, maxCTAs));
static_assert(offsetof(NcclConfig, net_name) == offsetof(ncclConfig_t, netName));
static_assert(offsetof(NcclConfig, split_share) == offsetof(ncclConfig_t, splitShare));
static_assert(NcclConfig::kUndefined == NCCL_CONFIG_UNDEF_INT);

static_assert(is_same(NcclResult::success, ncclSuccess));
static_assert(is_same(NcclResult::internal_error, ncclInternalError));
static_assert(is_same(NcclResult::in_progress, ncclInProgress));
static_assert(is_same(NcclType::fp16, ncclFloat16));
static_assert(is_same(NcclType::fp32, ncclFloat32));
static_assert(is_same(NcclType::fp64, ncclFloat64));
static_assert(is_same(NcclType::bf16, ncclBfloat16));
static_assert(is_same(NcclReduction::sum, ncclSum));
static_assert(is_same(NcclReduction::average, ncclAvg));

static_assert(same_shape<decltype(NcclApi::get_version), decltype(&ncclGetVersion)>);
static_assert(same_shape<decltype(NcclApi::get_unique_id), decltype(&ncclGetUniqueId)>);
static_assert(
    same_shape<decltype(NcclApi::comm_init_rank_config), decltype(&ncclCommInitRankConfig)>);
static_assert(
    same_shape<decltype(NcclApi::comm_get_async_error), decltype(&ncclCommGetAsyncError)>);
static_assert(same_shape<decltype(NcclApi::comm_finalize), decltype(&ncclCommFinalize)>);
static_assert(same_shape<decltype(NcclApi::comm_destroy), decltype(&ncclCommDestroy)>);
static_assert(same_shape<decltype(NcclApi::comm_abort), decltype(&ncclCommAbort)>);
static_assert(same_shape<decltype(NcclApi::all_gather), decltype(&ncclAllGather)>);
static_assert(same_shape<decltype(NcclApi::reduce_scatter), decltype(&ncclReduceScatter)>);
static_assert(same_shape<decltype(NcclApi::all_reduce), decltype(&ncclAllReduce)>);
static_assert(same_shape<decltype(NcclApi::group_start), decltype(&ncclGroupStart)>);
static_assert(same_shape<decltype(NcclApi::group_end), decltype(&ncclGroupEnd)>);
static_assert(same_shape<decltype(NcclApi::get_error_string), decltype(&ncclGetErrorString)>);
static_assert(same_shape<decltype(NcclApi::get_last_error), decltype(&ncclGetLastError)>);

}  // namespace

TEST_CASE("an undefined configuration is NCCL's own, except later versions' fields") {
  const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  const NcclConfig ours;
  CHECK(ours.magic == theirs.magic);
  CHECK(ours.size <= theirs.size);
  CHECK(ours.version <= theirs.version);
  CHECK(ours.blocking == theirs.blocking);
  CHECK(ours.cga_cluster_size == theirs.cgaClusterSize);
  CHECK(ours.min_ctas == theirs.minCTAs);
  CHECK(ours.max_ctas == theirs.maxCTAs);
  CHECK(ours.net_name == theirs.netName);
  CHECK(ours.split_share == theirs.splitShare);
}
