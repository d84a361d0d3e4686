// Prints how widely allocated and reserved memory are spread over orders of the segments'
// addresses, for recordings: with more and more orders, and for eight seeds. kDefaultOrders was
// chosen from this.
//
//     print_peak_bands RECORDING.slp...
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <exception>
#include <iostream>

#include "planner/simulate/allocator/peak_bands.h"
#include "profiler/file/reader.h"

namespace {

using namespace shardlens;
using namespace shardlens::planner;
using profiler::PeakBand;
using profiler::PeakBands;

constexpr int kAllOrders = 640;  // stands for all of them
constexpr int kSeeds = 8;

double percent(const PeakBand& band) {
  return 100 * static_cast<double>(band.most_bytes - band.least_bytes) /
         static_cast<double>(band.falling_bytes);
}

void print_spreads(const Replay& replay, const AllocatorSettings& settings) {
  for (const int orders : {5, 10, 20, 40, 80}) {
    double sum = 0;
    double least = 100;
    for (uint64_t i = 1; i <= kSeeds; ++i) {
      const double spread =
          percent(peaks_over_orders(replay, settings, orders, i * 1'000'000).reserved);
      sum += spread;
      least = std::min(least, spread);
    }
    fmt::print("  {:3} orders  {:.3f} % in the mean of {} seeds, {:.3f} % at least\n", orders,
               sum / kSeeds, kSeeds, least);
  }
}

void print_bands(const char* path) {
  const profiler::Profile profile = profiler::read_profile(path);
  const Replay replay(profile.events);
  const AllocatorSettings settings = {.free_block_order = models::FreeBlockOrder::address};
  const std::clock_t start = std::clock();
  const PeakBands bands = peaks_over_orders(replay, settings, kAllOrders);
  const PeakBand& allocated = bands.allocated;
  const PeakBand& band = bands.reserved;
  const double ms = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  fmt::print("{}: {} events, falling {}, least {:+}, most {:+}, {:.2f} ms on a core a replay\n",
             path, profile.events.size(), band.falling_bytes, band.least_bytes - band.falling_bytes,
             band.most_bytes - band.falling_bytes, ms / kAllOrders);
  fmt::print("  allocated {}, least {:+}, most {:+}; {} orders failed\n", allocated.falling_bytes,
             allocated.least_bytes - allocated.falling_bytes,
             allocated.most_bytes - allocated.falling_bytes, bands.failed_orders);
  print_spreads(replay, settings);
  fmt::print("  {:3} orders  {:.3f} %\n", kAllOrders, percent(band));
}

}  // namespace

int main(int count, char** arguments) {
  try {
    for (int i = 1; i < count; ++i) print_bands(arguments[i]);
  } catch (const std::exception& error) {
    std::cerr << "print_peak_bands: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
