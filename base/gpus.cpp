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

// NVIDIA's CUDA C++ Programming Guide 13, table "Technical specifications per compute capability".
// The system keeps one KiB of a multiprocessor's shared memory for each block: 227 of 228 remain.
constexpr ComputeCapability kAmpereA100{8, 0, 164_KiB, 163_KiB, 2048, 32};
constexpr ComputeCapability kAmpere{8, 6, 100_KiB, 99_KiB, 1536, 16};
constexpr ComputeCapability kAda{8, 9, 100_KiB, 99_KiB, 1536, 24};
constexpr ComputeCapability kHopper{9, 0, 228_KiB, 227_KiB, 2048, 32};
constexpr ComputeCapability kBlackwell{10, 0, 228_KiB, 227_KiB, 2048, 32};

// The counts of multiprocessors and the sizes of L2 come from NVIDIA's data sheets and architecture
// white papers (SXM modules if there are several forms). Memory is the total_memory that
// get_device_properties of PyTorch printed for h200, h100, b200, l40s and a10g, and what
// deviceQuery printed for a100-40. The memory of a100-80, l4 and rtx4090 was not seen in a
// printout, so it is to be confirmed on the GPU.
constexpr std::array kGpus = {
    Gpu{"b200", "NVIDIA B200", kBlackwell, 148, 182631_MiB, 126_MiB},
    Gpu{"h200", "NVIDIA H200", kHopper, 132, 143156_MiB, 60_MiB},
    Gpu{"h100", "NVIDIA H100 80GB HBM3", kHopper, 132, 81090_MiB, 50_MiB},
    Gpu{"a100-80", "NVIDIA A100-SXM4-80GB", kAmpereA100, 108, 81050_MiB, 40_MiB},
    Gpu{"a100-40", "NVIDIA A100-SXM4-40GB", kAmpereA100, 108, 40339_MiB, 40_MiB},
    Gpu{"l40s", "NVIDIA L40S", kAda, 142, 45589_MiB, 96_MiB},
    Gpu{"l4", "NVIDIA L4", kAda, 58, 22563_MiB, 48_MiB},
    Gpu{"a10g", "NVIDIA A10G", kAmpere, 80, 22587_MiB, 6_MiB},
    Gpu{"rtx4090", "NVIDIA GeForce RTX 4090", kAda, 128, 24217_MiB, 72_MiB},
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

}  // namespace shardlens
