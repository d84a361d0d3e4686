#include "profiler/null_device/outside_figures.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace shardlens::profiler {

namespace {

constexpr int64_t operator""_MiB(unsigned long long n) { return static_cast<int64_t>(n) << 20; }

struct Measurement {
  std::string_view gpu;
  int64_t least_bytes, bytes, most_bytes;
};

// These are the process's memory less what PyTorch had reserved, in out-of-memory errors or by
// nvidia-smi, of programs that train on one GPU with PyTorch 2.6 to 2.11. `bytes` is the middle, or
// the capacity that a program must lose to run out of memory at the same request as there.
//   b200     stas00/ml-engineering (debug), a trivial program
//   h200     OpenMOSS/SummerQuest-2026, assignment A2-P: errors of one author
//   h100     A2-P, errors of one author: 740 of the process, 750 of the GPU
//            our own, PyTorch 2.11: 742, and 758 with cuDNN (tests/fixtures/gpu/h100)
//   a100-40  TianheWu/CoSeR, issue 10
//   a800     SummerQuest-2026: rows that ran out allow more than 226 and at most 738, 501 repeats
//            them
//   l4       ArcInstitute/evo2, issue 190, and two READMEs
//   rtx4090  SummerQuest-2026: 19 errors of 12 authors; rows that ran out allow 455 to 485, 470
//            repeats them
constexpr std::array kMeasured = {
    Measurement{"b200", 712_MiB, 712_MiB, 712_MiB},
    Measurement{"h200", 680_MiB, 683_MiB, 686_MiB},
    Measurement{"h100", 740_MiB, 745_MiB, 758_MiB},
    Measurement{"a100-40", 501_MiB, 501_MiB, 501_MiB},
    Measurement{"a800", 227_MiB, 501_MiB, 738_MiB},
    Measurement{"l4", 235_MiB, 249_MiB, 263_MiB},
    Measurement{"rtx4090", 447_MiB, 470_MiB, 489_MiB},
};

/// A GPU without a figure, and the one of its generation whose figure stands in.
struct Relative {
  std::string_view gpu, measured;
};

constexpr std::array kRelatives = {
    Relative{"b300", "b200"}, Relative{"gb200", "b200"},      Relative{"h100-pcie", "h100"},
    Relative{"h20", "h100"},  Relative{"a100-80", "a100-40"}, Relative{"l40s", "rtx4090"},
};

// For all others: torch 2.10 with CUDA 13.0 had taken 426 MiB of an RTX 6000 Ada before its first
// tensor (unslothai/unsloth-zoo, issue 1053). Kernels are loaded when first used; their size is a
// guess between nothing and the 380 MB that CUDA 11.7 saved by not loading them at once (pytorch,
// pull request 86509).
constexpr int64_t kElsewhereBytes = 426_MiB + 160_MiB;

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

const Measurement* measured_on(std::string_view gpu) {
  const auto found = std::ranges::find(kMeasured, gpu, &Measurement::gpu);
  return found == kMeasured.end() ? nullptr : &*found;
}

/// `other` is where the figure was measured.
std::string doubt_text(const Gpu& gpu, std::string_view other) {
  return "CUDA's share on " + std::string(gpu.display_name) +
         " was not published: the estimate is from " + std::string(other) +
         "; --beside SIZE replaces it";
}

int64_t nvls_bytes(const Gpu& gpu, int ranks) {
  if (gpu.capability.major < 9 || !gpu.has_nvlink) return 0;
  const int channels = gpu.capability.major == 9 ? kHopperNvlsChannels : kBlackwellNvlsChannels;
  return int64_t{2} * channels * ranks * 1_MiB;
}

}  // namespace

CudaFigure cuda_figure(const Gpu& gpu) {
  if (const Measurement* const own = measured_on(gpu.name)) {
    return {.bytes = own->bytes, .least_bytes = own->least_bytes, .most_bytes = own->most_bytes};
  }
  const auto relative = std::ranges::find(kRelatives, gpu.name, &Relative::gpu);
  if (relative == kRelatives.end()) {
    return {.bytes = kElsewhereBytes,
            .least_bytes = kElsewhereBytes,
            .most_bytes = kElsewhereBytes,
            .doubt = doubt_text(gpu, "NVIDIA RTX 6000 Ada, and a guess in part")};
  }
  const Measurement& other = *measured_on(relative->measured);
  return {.bytes = other.bytes,
          .least_bytes = other.least_bytes,
          .most_bytes = other.most_bytes,
          .doubt = doubt_text(gpu, find_gpu(other.gpu).display_name)};
}

int64_t published_nccl_bytes(const Gpu& gpu, int ranks, int on_node) {
  const bool is_over_nvlink = on_node > 1 && gpu.has_nvlink;
  const int channels = is_over_nvlink ? kNvlinkChannels : kOtherChannels;
  const int64_t in_node =
      kRingChannelBytes * channels + (is_over_nvlink ? nvls_bytes(gpu, on_node) : 0);
  if (ranks <= on_node) return in_node;
  // Each channel leaves the node from one of the node's GPUs, which take turns.
  return in_node + kMoreToSendOverNetwork * ((channels + on_node - 1) / on_node);
}

}  // namespace shardlens::profiler
