#include "planner/time/rates.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "base/check.h"
#include "base/device.h"
#include "profiler/recording/profile.h"

namespace shardlens::planner {

namespace {

struct NamedRates {
  std::string_view gpu;
  Rates rates;
  Efficiency reached;
};

// NVIDIA's data sheets, dense rates: "B200" and "B300" (HGX), "GB200 NVL72", "H200 Tensor Core
// GPU", "H100 Tensor Core GPU" (SXM and PCIe), "A100 Tensor Core GPU" (SXM), "A800" (its NVLink has
// 400 GB/s), "L40S", "L4", "A10" with AWS's figures for the A10G, "RTX A6000", "V100 GPU" (SXM2),
// "T4", and the white papers of GeForce cards, with fp32 sums in tensor cores. NVIDIA publishes no
// sheet of the H20: those of its sellers. Networks are the adapters of DGX B200, H200, H100 (400
// Gbit/s a GPU; 800 for B300), A100 (200) and V100 (50); for the others 100 Gbit/s an adapter is
// assumed. PCIe: 3.0 (V100, T4), 4.0 or 5.0 x 16; GB200 has half of a Grace CPU's link, 900 GB/s
// both ways.
//
// The rates that are reached: half_tflops is the product of 4096^3 in gemm_tables.cpp where that
// has the GPU, else what its power limit is assumed to leave of the sheet's rate. The rest is
// measured on an H100 (tests/fixtures/gpu/h100/6-time.json: copies of 2^28 numbers, attention with
// heads of 128, fp32 products of 8192^3); FlashAttention-2's paper gives attention on A100; for
// other GPUs they are assumed to be alike within a generation.
constexpr std::array kRates = {
    NamedRates{"b300", {75, 2250, 8000, 900, 100, 64}, {1770, 55, 0.87, 7000, 0.25, 0.2}},
    NamedRates{"gb200", {80, 2500, 8000, 900, 50, 225}, {1700, 58, 0.87, 7000, 0.25, 0.2}},
    NamedRates{"b200", {75, 2250, 8000, 900, 50, 64}, {1520, 55, 0.87, 7000, 0.28, 0.22}},
    NamedRates{"h200", {67, 989, 4800, 450, 50, 64}, {820, 50, 0.87, 5500, 0.45, 0.38}},
    NamedRates{"h100", {67, 989, 3350, 450, 50, 64}, {820, 50, 0.87, 5500, 0.45, 0.38}},
    NamedRates{"h100-pcie", {51, 756, 2000, 64, 12.5, 64}, {480, 38, 0.87, 4500, 0.55, 0.45}},
    NamedRates{"h20", {44, 148, 4000, 450, 50, 64}, {138, 33, 0.87, 3500, 0.8, 0.65}},
    NamedRates{"a100-80", {19.5, 312, 2039, 300, 25, 32}, {255, 18, 0.87, 3800, 0.75, 0.62}},
    NamedRates{"a100-40", {19.5, 312, 1555, 300, 25, 32}, {250, 18, 0.87, 3800, 0.75, 0.62}},
    NamedRates{"a800", {19.5, 312, 2039, 200, 25, 32}, {255, 18, 0.87, 3800, 0.75, 0.62}},
    NamedRates{"l40s", {91.6, 362, 864, 32, 12.5, 32}, {220, 55, 0.87, 4000, 0.8, 0.65}},
    NamedRates{"l4", {30.3, 121, 300, 32, 12.5, 32}, {60, 14, 0.87, 1600, 0.8, 0.65}},
    NamedRates{"a10g", {31.5, 70, 600, 32, 12.5, 32}, {56, 17, 0.87, 2000, 0.8, 0.65}},
    NamedRates{"a6000", {38.7, 155, 768, 32, 12.5, 32}, {115, 24, 0.89, 2200, 0.75, 0.6}},
    NamedRates{"v100", {15.7, 125, 900, 150, 6.25, 16, false}, {95, 14, 0.87, 2000, 0.4, 0.3}},
    NamedRates{"v100-16", {15.7, 125, 900, 150, 6.25, 16, false}, {95, 14, 0.87, 2000, 0.4, 0.3}},
    NamedRates{"t4", {8.1, 65, 320, 16, 12.5, 16, false}, {26, 4.5, 0.78, 900, 0.5, 0.4}},
    NamedRates{"rtx5090", {104.8, 209.5, 1792, 64, 12.5, 64}, {195, 68, 0.91, 6000, 0.8, 0.65}},
    NamedRates{"rtx4090", {82.6, 165, 1008, 32, 12.5, 32}, {155, 54, 0.92, 4500, 0.85, 0.7}},
    NamedRates{"rtx3090", {35.6, 71, 936, 32, 12.5, 32}, {64, 23, 0.92, 2200, 0.8, 0.65}},
};

// These rates are assumptions about a core with wide vectors and a host's memory; they serve only
// to put strategies in an order.
constexpr double kTflopsAThread = 0.05;
constexpr double kHostMemoryGbps = 50;
constexpr Rates kHost = {0, 0, kHostMemoryGbps, 10, 1, kHostMemoryGbps};

const NamedRates& named(const Gpu& gpu) {
  const auto found = std::ranges::find(kRates, gpu.name, &NamedRates::gpu);
  check(found != kRates.end(), "a GPU without rates");
  return *found;
}

}  // namespace

Rates rates_of(const Gpu* gpu, int64_t threads) {
  if (gpu != nullptr) return named(*gpu).rates;
  Rates rates = kHost;
  rates.fp32_tflops = rates.half_tflops = kTflopsAThread * static_cast<double>(threads);
  return rates;
}

const Efficiency& reached_by(const Gpu& gpu) { return named(gpu).reached; }

const Gpu* recorded_gpu(const profiler::Header& header) {
  if (!header.device.starts_with(kNullDevice)) return find_displayed_gpu(header.gpu);
  const std::string_view name = std::string_view(header.device).substr(kNullDevice.size());
  const auto found = std::ranges::find(gpus(), name, &Gpu::name);
  return found == gpus().end() ? nullptr : &*found;
}

}  // namespace shardlens::planner
