#include "base/gpus.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

#include "base/nearest.h"

namespace shardlens {

namespace {

constexpr int64_t operator""_KiB(unsigned long long n) { return static_cast<int64_t>(n) << 10; }
constexpr int64_t operator""_MiB(unsigned long long n) { return static_cast<int64_t>(n) << 20; }

// NVIDIA's CUDA C++ Programming Guide 13, table "Technical specifications per compute capability";
// of 12 for Volta. From 8.0 on the system keeps one KiB of a multiprocessor's shared memory for
// each block: 227 of 228 remain.
constexpr ComputeCapability kVolta{7, 0, 96_KiB, 96_KiB, 2048, 32};
constexpr ComputeCapability kTuring{7, 5, 64_KiB, 64_KiB, 1024, 16};
constexpr ComputeCapability kAmpereA100{8, 0, 164_KiB, 163_KiB, 2048, 32};
constexpr ComputeCapability kAmpere{8, 6, 100_KiB, 99_KiB, 1536, 16};
constexpr ComputeCapability kAda{8, 9, 100_KiB, 99_KiB, 1536, 24};
constexpr ComputeCapability kHopper{9, 0, 228_KiB, 227_KiB, 2048, 32};
constexpr ComputeCapability kBlackwell{10, 0, 228_KiB, 227_KiB, 2048, 32};
constexpr ComputeCapability kBlackwellUltra{10, 3, 228_KiB, 227_KiB, 2048, 32};
constexpr ComputeCapability kBlackwellRtx{12, 0, 100_KiB, 99_KiB, 1536, 24};

constexpr bool kNvlink = true;  // bridges between two cards do not count

// The counts of multiprocessors and the sizes of L2 come from NVIDIA's data sheets and architecture
// white papers (SXM modules if there are several forms), where no printout is named. Memory is the
// total_memory that get_device_properties of PyTorch, or deviceQuery, printed in whole MiB. It
// depends on the driver, by up to 0.6 %.
//   b300      267.69 GiB, 287428771840 bytes (training logs of 2026)
//             148 multiprocessors, L2 of 126 MiB (benchmarks of a B300 SXM6 AC, driver 580.126)
//   gb200     184.31 GiB (out-of-memory errors of vLLM), 152 multiprocessors (tests of FastVideo)
//             the L2 is that of b200, the same chip: no printout was found
//   b200      182631 MiB, L2 of 126.5 MiB (pytorch/ao, pull request 4002)
//   h200      143167 MiB (OpenMOSS/SummerQuest-2026); 143156 of other drivers
//   h100      81090 MiB (OpenMOSS/SummerQuest-2026); 81105 of driver 565
//             81079 of driver 580.159 (tests/fixtures/gpu/h100/1-facts.json)
//   h100-pcie 81105 MiB, 114 multiprocessors, L2 of 50 MiB (nvaccelinfo, driver 565)
//             81008 of older drivers
//   h20       97285 MiB, 78 multiprocessors (PainlessInferenceAcceleration's seg_la.py)
//             L2 of 60 MiB (measurements of FIDESlib)
//   a100-80   81053 MiB (OpenMOSS/SummerQuest-2026)
//   a100-40   40338 MiB; 40339 (bottlerocket-os/bottlerocket, pull request 3873)
//             39.49 to 39.50 GiB of newer drivers (cornell-sysphotonics/ccl-bench)
//   a800      81151 MiB (OpenMOSS/SummerQuest-2026)
//   l40s      44.39 to 44.42 GiB, by driver (stepfun-ai/Step-Video-T2V, issue 8)
//             45589 MiB of older drivers
//   l4        22.03 GiB (ArcInstitute/evo2, issue 190)
//   a10g      22.06 GiB
//   a6000     48676 MiB (pytorch/ao); 48790 of other drivers
//   v100      32510 MiB (a deviceQuery with CUDA 11.4); v100-16: 16160 (ultralytics/yolov5)
//   t4        15095 MiB, L2 of 4 MiB (sylvia-ymlin/cuda-kernels-from-scratch); 14930 to 15109
//   rtx5090   32120 MiB, L2 of 96 MiB (NVIDIA/nccl, issue 1637); 32117
//   rtx4090   24111 to 24217 MiB, by driver (OpenMOSS/SummerQuest-2026)
//   rtx3090   24115 MiB, L2 of 6 MiB (Jumperkables/cuda-benchmarking); 24259 of older drivers
constexpr std::array kGpus = {
    Gpu{"b300", "NVIDIA B300 SXM6 AC", kBlackwellUltra, 148, 274113_MiB, 126_MiB, kNvlink},
    Gpu{"gb200", "NVIDIA GB200", kBlackwell, 152, 188733_MiB, 129536_KiB, kNvlink},
    Gpu{"b200", "NVIDIA B200", kBlackwell, 148, 182631_MiB, 129536_KiB, kNvlink},
    Gpu{"h200", "NVIDIA H200", kHopper, 132, 143167_MiB, 60_MiB, kNvlink},
    Gpu{"h100", "NVIDIA H100 80GB HBM3", kHopper, 132, 81090_MiB, 50_MiB, kNvlink},
    Gpu{"h100-pcie", "NVIDIA H100 PCIe", kHopper, 114, 81105_MiB, 50_MiB},
    Gpu{"h20", "NVIDIA H20", kHopper, 78, 97285_MiB, 60_MiB, kNvlink},
    Gpu{"a100-80", "NVIDIA A100-SXM4-80GB", kAmpereA100, 108, 81053_MiB, 40_MiB, kNvlink},
    Gpu{"a100-40", "NVIDIA A100-SXM4-40GB", kAmpereA100, 108, 40338_MiB, 40_MiB, kNvlink},
    Gpu{"a800", "NVIDIA A800-SXM4-80GB", kAmpereA100, 108, 81151_MiB, 40_MiB, kNvlink},
    Gpu{"l40s", "NVIDIA L40S", kAda, 142, 45466_MiB, 96_MiB},
    Gpu{"l4", "NVIDIA L4", kAda, 58, 22563_MiB, 48_MiB},
    Gpu{"a10g", "NVIDIA A10G", kAmpere, 80, 22587_MiB, 6_MiB},
    Gpu{"a6000", "NVIDIA RTX A6000", kAmpere, 84, 48676_MiB, 6_MiB},
    Gpu{"v100", "Tesla V100-SXM2-32GB", kVolta, 80, 32510_MiB, 6_MiB, kNvlink},
    Gpu{"v100-16", "Tesla V100-SXM2-16GB", kVolta, 80, 16160_MiB, 6_MiB, kNvlink},
    Gpu{"t4", "Tesla T4", kTuring, 40, 15095_MiB, 4_MiB},
    Gpu{"rtx5090", "NVIDIA GeForce RTX 5090", kBlackwellRtx, 170, 32120_MiB, 96_MiB},
    Gpu{"rtx4090", "NVIDIA GeForce RTX 4090", kAda, 128, 24217_MiB, 72_MiB},
    Gpu{"rtx3090", "NVIDIA GeForce RTX 3090", kAmpere, 82, 24115_MiB, 6_MiB},
};

std::string unknown_gpu(std::string_view name) {
  std::string names;
  for (const Gpu& gpu : kGpus) names += (names.empty() ? "" : ", ") + std::string(gpu.name);
  const Gpu& nearest = nearest_named(kGpus, name);
  const bool mistyped = name_distance(name, nearest.name) <= kMistypedEdits;
  return "GPU " + std::string(name) + ": not known; " +
         (mistyped ? "did you mean " + std::string(nearest.name) + "? Known GPUs: "
                   : "give one of ") +
         names;
}

}  // namespace

std::span<const Gpu> gpus() { return kGpus; }

const Gpu& find_gpu(std::string_view name) {
  const auto found = std::ranges::find(kGpus, name, &Gpu::name);
  if (found == kGpus.end()) throw std::invalid_argument(unknown_gpu(name));
  return *found;
}

const Gpu* find_displayed_gpu(std::string_view display_name) {
  const auto found = std::ranges::find(kGpus, display_name, &Gpu::display_name);
  return found == kGpus.end() ? nullptr : &*found;
}

}  // namespace shardlens
