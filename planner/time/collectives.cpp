#include "planner/time/collectives.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <string_view>

#include "planner/time/nccl_tables.h"
#include "planner/time/rates.h"

namespace shardlens::planner {

namespace {

using profiler::CollectiveKind;

constexpr double kLaunchSeconds = 5e-6;  // of NCCL's kernel, with its wait for the others
constexpr double kNvlinkReached = 0.8;   // of a link, by a ring of large messages
constexpr double kPcieReached = 0.37;    // of a link: 8 RTX PRO 6000 reach 24 of 64 GB/s
constexpr double kNetworkReached = 0.85;

/// The cost of one protocol, in NCCL's tuning model: a latency for the call and one for each step,
/// by link, and the part of the bandwidth that it leaves to data.
struct Protocol {
  double call, nvlink, pcie, network;  // microseconds
  double bandwidth;
};
constexpr std::array kProtocols = {Protocol{6.6, 0.6, 1.0, 2.7, 0.25},
                                   Protocol{14.0, 1.9, 1.9, 4.0, 0.92},
                                   Protocol{8.4, 3.4, 5.7, 14.0, 1.0}};

/// Operations that NCCL does in the same steps as another one.
CollectiveKind measured_kind(CollectiveKind kind) {
  if (kind == CollectiveKind::broadcast) return CollectiveKind::all_gather;
  if (kind == CollectiveKind::reduce) return CollectiveKind::reduce_scatter;
  return kind;
}

/// The part of the bytes that crosses each link of a ring.
double ring_part(CollectiveKind kind, double size) {
  switch (kind) {
    case CollectiveKind::all_reduce:
      return 2 * (size - 1) / size;
    case CollectiveKind::broadcast:
    case CollectiveKind::reduce:
    case CollectiveKind::send:
    case CollectiveKind::receive:
      return 1;
    default:
      return (size - 1) / size;
  }
}

double link_gbps(const Gpu& gpu) {
  return rates_of(&gpu, 1).link_gbps * (gpu.has_nvlink ? kNvlinkReached : kPcieReached);
}

/// The bandwidth of a ring: that of its slowest link.
double ring_gbps(const Gpu& gpu, const RankLayout& ranks) {
  const double network = rates_of(&gpu, 1).network_gbps * kNetworkReached * ranks.a_node;
  if (ranks.nodes() == 1) return link_gbps(gpu);
  return ranks.a_node == 1 ? network : std::min(link_gbps(gpu), network);
}

double ring_or_tree_seconds(const Gpu& gpu, CollectiveKind kind, double bytes,
                            const RankLayout& ranks) {
  const double gbps = ring_gbps(gpu, ranks);
  const bool is_twice = kind == CollectiveKind::all_reduce;
  const bool is_pair = kind == CollectiveKind::send || kind == CollectiveKind::receive;
  const int rounds = is_twice ? 2 : 1;
  const int nodes = ranks.nodes();
  double best = 1e30;
  for (const Protocol& protocol : kProtocols) {
    const double local = gpu.has_nvlink ? protocol.nvlink : protocol.pcie;
    const double in_node = is_pair ? 1 : rounds * (ranks.size - nodes);
    const double between = is_pair ? nodes - 1 : rounds * (nodes - 1);
    const double data = bytes * ring_part(kind, ranks.size) / (gbps * protocol.bandwidth * 1e3);
    best = std::min(best, protocol.call + in_node * local + between * protocol.network + data);
    if (!is_twice) continue;
    const double depth = 2 * ((ranks.a_node - 1) * local + std::log2(nodes) * protocol.network);
    best = std::min(best, protocol.call + depth + 1.1 * data);
  }
  return kLaunchSeconds + best * 1e-6;
}

/// Returns the seconds of a measured collective of `bytes`, at or beyond the sizes measured.
double seconds_between_sizes(const NcclTable& table, double bytes) {
  constexpr double kSmallest = 1024;
  const double last = static_cast<double>(table.microseconds.size()) - 1;
  const double place = std::max(0.0, std::log2(std::max(bytes, 1.0) / kSmallest) / 2);
  const double from = std::min(std::floor(place), last - 1);
  const auto index = static_cast<size_t>(from);
  const double low = std::log2(table.microseconds[index]);
  const double high = std::log2(table.microseconds[index + 1]);
  if (place > last) return std::exp2(high + 2 * (place - last)) * 1e-6;  // by bytes
  return std::exp2(low + (place - from) * (high - low)) * 1e-6;
}

/// The GPU of the tables whose links are those of another one; and how much slower these are.
std::string_view measured_like(const Gpu& gpu) {
  if (gpu.name == "a100-40" || gpu.name == "a800") return "a100-80";
  if (gpu.name == "h20") return "h200";
  return gpu.name;
}

/// Returns the seconds by the tables; 0 if the GPU is in none.
double measured_seconds(const Gpu& gpu, CollectiveKind kind, double bytes, int gpus) {
  const std::string_view like = measured_like(gpu);
  std::map<int, double> by_gpus;
  for (const NcclTable& table : nccl_tables()) {
    if (table.gpu != like || table.kind != measured_kind(kind)) continue;
    by_gpus[table.gpus] = seconds_between_sizes(table, bytes);
  }
  if (by_gpus.empty() || gpus > kGpusANode) return 0;
  const auto above = by_gpus.lower_bound(gpus);
  if (above == by_gpus.end()) return by_gpus.rbegin()->second;
  const double slower = rates_of(&find_gpu(like), 1).link_gbps / rates_of(&gpu, 1).link_gbps;
  const double scale = bytes > (1 << 20) ? slower : 1;
  if (above->first == gpus || above == by_gpus.begin()) return above->second * scale;
  const auto below = std::prev(above);
  const double part = std::log2(static_cast<double>(gpus) / below->first) /
                      std::log2(static_cast<double>(above->first) / below->first);
  return scale * std::exp2((1 - part) * std::log2(below->second) + part * std::log2(above->second));
}

}  // namespace

RankLayout ranks_of(const profiler::WorkCommunicator& communicator) {
  std::map<int, int> by_node;
  for (const int32_t rank : communicator.world_ranks) ++by_node[rank / kGpusANode];
  int most = 0;
  for (const auto& [node, ranks] : by_node) most = std::max(most, ranks);
  if (most == 0) most = std::min<int>(communicator.size, kGpusANode);
  return {.size = communicator.size, .a_node = most};
}

bool has_measured_collectives(const Gpu& gpu, const RankLayout& ranks) {
  return ranks.nodes() == 1 && measured_seconds(gpu, CollectiveKind::all_gather, 1, ranks.size) > 0;
}

double collective_seconds(const Gpu& gpu, CollectiveKind kind, int64_t bytes,
                          const RankLayout& ranks) {
  if (ranks.size < 2) return kKernelFloor;
  const auto size = static_cast<double>(bytes);
  const bool is_pair = kind == CollectiveKind::send || kind == CollectiveKind::receive;
  if (ranks.nodes() == 1 && !is_pair) {
    const double seconds = measured_seconds(gpu, kind, size, ranks.size);
    if (seconds > 0) return seconds;
  }
  return ring_or_tree_seconds(gpu, kind, size, ranks);
}

}  // namespace shardlens::planner
