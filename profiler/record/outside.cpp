#include "profiler/record/outside.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/gpus.h"
#include "base/units.h"
#include "profiler/null_device/outside_figures.h"

namespace shardlens::profiler {

namespace {

OutsideBytes known_outside(int64_t bytes, const char* from) {
  return {.bytes = bytes, .least_bytes = bytes, .most_bytes = bytes, .from = from};
}

OutsideBytes measured_outside(const Ledger& ledger) {
  if (!ledger.device_used_bytes) return {};  // unknown: the program was killed too early
  return known_outside(*ledger.device_used_bytes - ledger.reserved_bytes.value_or(0), "measured");
}

/// Returns "CUDA 745.00 MiB (published figures, from 740.00 MiB to 758.00 MiB)".
std::string cuda_text(const CudaFigure& figure) {
  const std::string band = figure.has_band()
                               ? fmt::format(", from {} to {}", bytes_text(figure.least_bytes),
                                             bytes_text(figure.most_bytes))
                               : "";
  return fmt::format("CUDA {} (published figures{})", bytes_text(figure.bytes), band);
}

std::vector<GpuGroup> communicators_of(const RecordOptions& options, int world_size,
                                       const RecordFacts& facts) {
  if (facts.is_known || world_size == 1) return facts.communicators;
  const bool knows_nodes = options.world_size || options.gpus_per_node;
  const int gpus = knows_nodes ? options.gpus() : kGpusANode;
  return {{.ranks = world_size, .on_node = std::min(world_size, gpus)}};
}

/// Returns "1 communicator of 64 ranks, 2 of 8".
std::string sizes_text(const std::vector<GpuGroup>& communicators) {
  std::map<int, int, std::greater<>> number_of;  // by ranks
  for (const GpuGroup& one : communicators) ++number_of[one.ranks];
  std::string text;
  for (const auto& [ranks, number] : number_of) {
    text += text.empty() ? fmt::format("{} communicator{} of {} ranks", number,
                                       number == 1 ? "" : "s", ranks)
                         : fmt::format(", {} of {}", number, ranks);
  }
  return text;
}

}  // namespace

OutsideBytes outside_of(const RecordOptions& options, const RankReport& report,
                        const RecordFacts& facts) {
  if (options.is_attached()) return measured_outside(report.ledger);
  if (options.beside_bytes) return known_outside(*options.beside_bytes, "given");
  const Gpu& gpu = find_gpu(options.device.gpu);
  const CudaFigure cuda = cuda_figure(gpu);
  const auto communicators = communicators_of(options, report.header.world_size, facts);
  int64_t nccl_bytes = 0;
  for (const GpuGroup& one : communicators) {
    nccl_bytes += published_nccl_bytes(gpu, one.ranks, one.on_node);
  }
  OutsideBytes outside{.bytes = cuda.bytes + nccl_bytes,
                       .least_bytes = cuda.least_bytes + nccl_bytes,
                       .most_bytes = cuda.most_bytes + nccl_bytes,
                       .from = "published",
                       .estimate = cuda_text(cuda),
                       .doubt = cuda.doubt};
  if (communicators.empty()) return outside;
  outside.estimate += fmt::format(", NCCL {} (buffers of its version 2.30) for {}",
                                  bytes_text(nccl_bytes), sizes_text(communicators));
  if (communicators.size() > 1) outside.estimate += ", if all of them are used";
  return outside;
}

}  // namespace shardlens::profiler
