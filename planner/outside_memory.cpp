#include "planner/outside_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "base/input_file.h"
#include "base/limits.h"
#include "base/strict_json.h"
#include "planner/config/options.h"
#include "planner/cost/action_times.h"
#include "planner/simulate/simulation.h"
#include "profiler/null_device/outside_figures.h"
#include "profiler/report/recording_report.h"

namespace shardlens::planner {

namespace {

bool is_library(const std::string& name, std::string_view part) {
  return name.find(part) != std::string::npos;
}

void take_published(OutsideMemory& outside, const profiler::CudaFigure& figure) {
  outside.context_bytes = figure.bytes;
  outside.below_bytes = figure.bytes - figure.least_bytes;
  outside.above_bytes = figure.most_bytes - figure.bytes;
  outside.doubt = figure.doubt;
}

/// Returns how many communicators the recorded run had.
int recorded_communicators(const profiler::Header& header) {
  Config config;
  read_json(config, header.config, "the recording's configuration");
  return communicators_of(parse_schedule(header.train), config.communicators);
}

Calibration from_recording(const std::string& path) {
  const profiler::RankReport report = profiler::report_of(path);
  if (!profiler::is_whole(report.judgement)) {
    throw std::invalid_argument(fmt::format("--calibration {}: {}; give a recording that is whole",
                                            path, profiler::judgement_text(report.judgement)));
  }
  const profiler::Ledger& ledger = report.ledger;
  if (!report.header.is_on_gpu() || !ledger.context_bytes || !ledger.reserved_bytes ||
      !ledger.device_used_bytes) {
    throw std::invalid_argument(fmt::format(
        "--calibration {}: does not say what the device had in use; record a run on a GPU with "
        "train --profile on",
        path));
  }
  int64_t nccl_bytes = 0;
  for (const auto& [library, bytes] : ledger.libraries) {
    if (is_library(library, "nccl")) nccl_bytes += bytes;
  }
  const int64_t beside_bytes =
      *ledger.device_used_bytes - ledger.before_bytes.value_or(0) - *ledger.reserved_bytes;
  Calibration calibration{
      .context_bytes = *ledger.context_bytes, .source = path, .gpu = report.header.gpu};
  calibration.modules_bytes =
      std::max<int64_t>(0, beside_bytes - calibration.context_bytes - nccl_bytes);
  if (nccl_bytes > 0) {
    calibration.nccl_bytes_a_communicator =
        nccl_bytes / std::max(1, recorded_communicators(report.header));
  }
  return calibration;
}

Calibration from_json(const std::string& path) {
  const auto json =
      find_json(read_file(path, kDescription.bytes, "give --calibration a recording or its JSON"),
                kDescription)
          .value_or(nullptr);
  Calibration calibration{.source = path};
  const std::array<std::pair<const char*, int64_t*>, 3> keys = {
      {{"context_bytes", &calibration.context_bytes},
       {"modules_bytes", &calibration.modules_bytes},
       {"nccl_bytes_a_communicator", &calibration.nccl_bytes_a_communicator}}};
  for (const auto& [key, bytes] : keys) {
    constexpr int64_t kMostBytes = int64_t{1} << 50;
    const bool is_given = json.is_object() && json.contains(key) && json[key].is_number_integer();
    if (is_given) *bytes = json[key].get<int64_t>();
    if (is_given && *bytes >= 0 && *bytes <= kMostBytes) continue;
    throw std::invalid_argument(
        fmt::format("--calibration {}: no whole number of bytes \"{}\"; give a recording of a run "
                    "on a GPU, or JSON with this key",
                    path, key));
  }
  return calibration;
}

}  // namespace

int communicators_of(const Schedule& schedule, int64_t wanted) {
  return static_cast<int>(communicator_channels(schedule, wanted).size());
}

OutsideMemory outside_memory(const Gpu& gpu, const Schedule& schedule, int64_t communicators,
                             const KnownOutside& known) {
  const std::vector<Channel> channels = communicator_channels(schedule, communicators);
  OutsideMemory outside{.communicators = static_cast<int>(channels.size()),
                        .given_bytes = known.bytes};
  if (known.bytes) return outside;
  const auto& calibration = known.calibration;
  if (calibration) {
    outside.context_bytes = calibration->context_bytes;
    outside.modules_bytes = calibration->modules_bytes;
    outside.source = calibration->source;
  } else {
    take_published(outside, profiler::cuda_figure(gpu));
  }
  for (const Channel channel : channels) {
    const int64_t measured = calibration ? calibration->nccl_bytes_a_communicator : 0;
    const RankSet ranks = schedule.ranks_of(channel);
    outside.nccl_bytes +=
        measured > 0 ? measured
                     : profiler::published_nccl_bytes(gpu, ranks.size, layout_of(ranks).a_node);
  }
  return outside;
}

Calibration read_calibration(const std::string& path) {
  return path.ends_with(".json") ? from_json(path) : from_recording(path);
}

}  // namespace shardlens::planner
