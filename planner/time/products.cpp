#include "planner/time/products.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "base/check.h"
#include "planner/time/gemm_tables.h"
#include "planner/time/rates.h"

namespace shardlens::planner {

namespace {

using profiler::NumberType;
using profiler::Product;

/// A GPU, as the model of tiles and waves needs it.
struct Processor {
  int sm_count = 0;
  double tflops = 0;  // that large products reach
  double memory_gbps = 0;
};

// A GPU that serves only for others: 188 multiprocessors, 1597 GB/s (NVIDIA's data sheet).
constexpr Processor kProcessorOfRtxPro6000 = {188, 398, 1597 * 0.9};

/// The sizes of a product whose operands are `bytes` a number.
struct Sizes {
  double rows = 0;
  double columns = 0;
  double depth = 0;
  double batch = 1;
  double bytes = 2;
};

struct Tile {
  double rows, columns;
  double reached;  // of the rate of the largest tile
};
constexpr std::array kTiles = {Tile{256, 128, 1},  Tile{128, 256, 1},  Tile{128, 128, 0.92},
                               Tile{128, 64, 0.8}, Tile{64, 128, 0.8}, Tile{64, 64, 0.6},
                               Tile{64, 32, 0.4},  Tile{32, 64, 0.4},  Tile{32, 32, 0.25}};
// fp32 without tensor cores: small tiles lose less, since numbers are reused from registers.
constexpr std::array kFp32Tiles = {Tile{128, 128, 1},  Tile{128, 64, 0.9}, Tile{64, 128, 0.9},
                                   Tile{64, 64, 0.65}, Tile{64, 32, 0.5},  Tile{32, 64, 0.5},
                                   Tile{32, 32, 0.35}};
// A tile that is alone on its multiprocessor reaches this part, since nothing hides its waits: of
// fp32 products on an H100, those of 1024^3 and 64 x 4096 x 4096 (6-time.json).
constexpr double kAlone = 0.7;

double bytes_moved(const Sizes& sizes) {
  return sizes.batch * sizes.bytes *
         (sizes.rows * sizes.depth + sizes.columns * sizes.depth + sizes.rows * sizes.columns);
}

/// Returns the seconds in which multiprocessors take tiles in waves, with the depth cut into parts
/// where there are fewer tiles than multiprocessors.
template <class Tiles>
double waves_seconds(const Tiles& tiles, const Sizes& sizes, const Processor& processor) {
  const double rate = processor.tflops * 1e12 / processor.sm_count;
  double best = 1e30;
  for (const Tile& tile : tiles) {
    const double count =
        sizes.batch * std::ceil(sizes.rows / tile.rows) * std::ceil(sizes.columns / tile.columns);
    for (double parts = 1; parts <= 16; parts *= 2) {
      if (parts > 1 && (count * parts > processor.sm_count || sizes.depth / parts < 256)) break;
      const double waves = std::ceil(count * parts / processor.sm_count);
      const double flops = 2 * tile.rows * tile.columns * sizes.depth / parts;
      const double reached = tile.reached * (waves == 1 ? kAlone : 1);
      best = std::min(best, waves * flops / (rate * reached));
    }
  }
  return best;
}

template <class Tiles>
double waves_or_memory_seconds(const Tiles& tiles, const Sizes& sizes, const Processor& processor) {
  const double memory = bytes_moved(sizes) / (processor.memory_gbps * 1e9);
  return kKernelFloor + std::max(waves_seconds(tiles, sizes, processor), memory);
}

/// A place between two points of a grid: the lower one's index, and how far it is to the next.
struct Place {
  size_t index = 0;
  double part = 0;
  double beyond = 0;  // octaves beyond the grid's last point
};

Place place_in(std::span<const int> grid, double value) {
  const double first = grid.front(), last = grid.back();
  const double inside = std::clamp(value, first, last);
  size_t index = 0;
  while (index + 2 < grid.size() && grid[index + 1] <= inside) ++index;
  const double from = std::log2(grid[index]), to = std::log2(grid[index + 1]);
  return {.index = index,
          .part = (std::log2(inside) - from) / (to - from),
          .beyond = std::max(0.0, std::log2(value / last))};
}

double tabled_seconds(const GemmTable& table, const Sizes& sizes) {
  const Place row = place_in(table.rows, sizes.rows * sizes.batch);
  const Place column = place_in(table.sides, sizes.columns);
  const Place depth = place_in(table.sides, sizes.depth);
  double sum = row.beyond + column.beyond + depth.beyond;
  for (int corner = 0; corner < 8; ++corner) {
    const bool i = corner & 1, j = corner & 2, k = corner & 4;
    const double weight = (i ? row.part : 1 - row.part) * (j ? column.part : 1 - column.part) *
                          (k ? depth.part : 1 - depth.part);
    if (weight == 0) continue;
    sum += weight * table.log2_seconds(row.index + i, column.index + j, depth.index + k);
  }
  return std::exp2(sum);
}

const GemmTable* table_named(std::string_view name) {
  const auto found = std::ranges::find(gemm_tables(), name, &GemmTable::gpu);
  return found == gemm_tables().end() ? nullptr : &*found;
}

/// The GPU whose measured products are most like those of one that has none.
std::string_view likest(const Gpu& gpu) {
  if (gpu.capability.major >= 12) return "rtx-pro-6000";
  if (gpu.capability.major >= 10) return "b200";
  if (gpu.capability.major == 9) return "h100";
  if (gpu.capability.major == 8 && gpu.capability.minor == 9) return "l40s";
  return "a100-80";
}

Processor processor_of(const Gpu& gpu) {
  const Efficiency& reached = reached_by(gpu);
  return {gpu.sm_count, reached.half_tflops, rates_of(&gpu, 1).memory_gbps * reached.memory};
}

/// Scales the times of a table by what the model says of both processors.
double scaled_seconds(const Processor& processor, const Sizes& sizes, std::string_view name) {
  const Processor measured =
      name == "rtx-pro-6000" ? kProcessorOfRtxPro6000 : processor_of(find_gpu(name));
  const GemmTable* table = table_named(name);
  check(table != nullptr, "a GPU without measured products");
  return tabled_seconds(*table, sizes) * waves_or_memory_seconds(kTiles, sizes, processor) /
         waves_or_memory_seconds(kTiles, sizes, measured);
}

double half_seconds(const Gpu& gpu, const Sizes& sizes) {
  const GemmTable* table = table_named(gpu.name);
  const Processor processor = processor_of(gpu);
  const double seconds = table != nullptr ? tabled_seconds(*table, sizes)
                                          : scaled_seconds(processor, sizes, likest(gpu));
  const double memory = bytes_moved(sizes) / (processor.memory_gbps * 1e9);
  return sizes.batch > 1 ? std::max(seconds, memory) : seconds;
}

double plain_fp32_seconds(const Gpu& gpu, const Sizes& sizes) {
  Processor processor = processor_of(gpu);
  processor.tflops = reached_by(gpu).fp32_tflops;
  return waves_or_memory_seconds(kFp32Tiles, sizes, processor);
}

bool is_on_tensor_cores(const Gpu& gpu, const Product& product) {
  const bool is_ampere = gpu.capability.major >= 8;
  const bool is_tf32 = product.compute == NumberType::tf32 && is_ampere;
  const bool is_fast_half = is_half(product.a) && (product.a != NumberType::bf16 || is_ampere);
  return is_fp8(product.a) || is_fast_half || is_tf32;
}

/// cuBLAS counts columns where the tables count rows: its C is a transposed matrix.
Sizes sizes_of(const Product& product) {
  return {.rows = static_cast<double>(product.n),
          .columns = static_cast<double>(product.m),
          .depth = static_cast<double>(product.k),
          .batch = static_cast<double>(product.batch)};
}

}  // namespace

double GemmTable::log2_seconds(size_t row, size_t column, size_t depth) const {
  constexpr int kFirstDigit = '!', kDigits = 94;
  constexpr double kUnitsAnOctave = 256, kShortest = 0.5e-6;
  const size_t at = 2 * ((row * sides.size() + column) * sides.size() + depth);
  check(at + 1 < times.size(), "a product outside its table");
  const int units = (times[at] - kFirstDigit) * kDigits + times[at + 1] - kFirstDigit;
  return std::log2(kShortest) + units / kUnitsAnOctave;
}

double product_flops(const Product& product) {
  return 2.0 * static_cast<double>(product.m) * static_cast<double>(product.n) *
         static_cast<double>(product.k) * static_cast<double>(product.batch);
}

double product_seconds(const Gpu& gpu, const Product& product) {
  Sizes sizes = sizes_of(product);
  if (sizes.rows * sizes.columns * sizes.depth * sizes.batch <= 0) return kKernelFloor;
  if (is_on_tensor_cores(gpu, product)) {
    if (is_fp8(product.a)) sizes.depth = std::max(1.0, sizes.depth / 2);
    if (product.a == NumberType::fp32) sizes.depth *= 2;  // tf32
    return half_seconds(gpu, sizes);
  }
  if (product.a == NumberType::fp64) sizes.bytes = 8, sizes.depth *= 2;
  if (product.a == NumberType::fp32) sizes.bytes = 4;
  return plain_fp32_seconds(gpu, sizes);
}

double product_seconds_in_step(const Gpu& gpu, const Product& product) {
  constexpr double kLonger = 1.2;
  const double seconds = product_seconds(gpu, product);
  return is_on_tensor_cores(gpu, product) ? kKernelFloor + kLonger * (seconds - kKernelFloor)
                                          : seconds;
}

double scaled_product_seconds(const Gpu& gpu, const Gpu& measured, const Product& product) {
  return scaled_seconds(processor_of(gpu), sizes_of(product), measured.name);
}

bool has_measured_products(const Gpu& gpu) { return table_named(gpu.name) != nullptr; }

}  // namespace shardlens::planner
