#include "profiler/null_device/outside_figures.h"

namespace shardlens::profiler {

namespace {

constexpr int64_t operator""_MiB(unsigned long long n) { return static_cast<int64_t>(n) << 20; }

// torch 2.10 with CUDA 13.0 had taken 426 MiB of an RTX 6000 Ada before its first tensor
// (unslothai/unsloth-zoo, issue 1053). With lazy loading CUDA 11.7 took 287 MB (pytorch, pull
// request 86509). No figure for Hopper or Blackwell is published.
constexpr int64_t kContextBytes = 426_MiB;

// Kernels are loaded when first used. Their size is a guess between nothing and the 380 MB that
// CUDA 11.7 saved by not loading them at once (the same pull request).
constexpr int64_t kModulesBytes = 160_MiB;

// NCCL 2.30, transport/p2p.cc and init.cc: a channel's connection has Simple 4 MiB, LL 0.5 MiB and
// LL128 4.69 MiB to receive, in pages of 2 MiB, and 2 MiB to send. A ring has one of each.
constexpr int64_t kRingChannelBytes = 10_MiB + 2_MiB;

// NCCL 2.30, transport/net.cc: a network card that reads the GPU's memory also needs buffers to
// send from, of 10 MiB instead of 2.
constexpr int64_t kMoreToSendOverNetwork = 8_MiB;

// NCCL 2.30, graph/connect.cc and nvls.cc: channels of a ring over NVLink, over PCIe or a network;
// channels of NVLink SHARP, each with two buffers of 1 MiB for every GPU of the node. A ring over
// several nodes with NVLink has 16 to 24, depending on the network cards; we count as many as in a
// node.
constexpr int kNvlinkChannels = 24;
constexpr int kOtherChannels = 8;
constexpr int kHopperNvlsChannels = 16;
constexpr int kBlackwellNvlsChannels = 24;

bool has_nvlink(const Gpu& gpu) { return gpu.capability.minor == 0; }  // 8.0, 9.0, 10.0

int64_t nvls_bytes(const Gpu& gpu, int ranks) {
  if (gpu.capability.major < 9 || !has_nvlink(gpu)) return 0;
  const int channels = gpu.capability.major == 9 ? kHopperNvlsChannels : kBlackwellNvlsChannels;
  return int64_t{2} * channels * ranks * 1_MiB;
}

}  // namespace

CudaFigures published_cuda_figures() {
  return {.context_bytes = kContextBytes, .modules_bytes = kModulesBytes};
}

int64_t published_nccl_bytes(const Gpu& gpu, int ranks, int on_node) {
  const bool is_over_nvlink = on_node > 1 && has_nvlink(gpu);
  const int channels = is_over_nvlink ? kNvlinkChannels : kOtherChannels;
  const int64_t in_node =
      kRingChannelBytes * channels + (is_over_nvlink ? nvls_bytes(gpu, on_node) : 0);
  if (ranks <= on_node) return in_node;
  // Each channel leaves the node from one of the node's GPUs, which take turns.
  return in_node + kMoreToSendOverNetwork * ((channels + on_node - 1) / on_node);
}

}  // namespace shardlens::profiler
