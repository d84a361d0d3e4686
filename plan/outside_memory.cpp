#include "plan/outside_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <vector>

#include "base/input_file.h"
#include "base/limits.h"
#include "base/strict_json.h"
#include "config/strategy.h"
#include "profiler/recording_report.h"
#include "simulate/simulation.h"

namespace shardlens::planner {

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

// NCCL 2.30, transport/net.cc: a card that reads the GPU's memory needs buffers to send from, too,
// of 10 MiB in place of 2.
constexpr int64_t kMoreToSendOverNetwork = 8_MiB;

// NCCL 2.30, graph/connect.cc and nvls.cc: channels of a ring over NVLink, over PCIe or a network;
// channels of NVLink SHARP, each with two buffers of 1 MiB for every GPU of the node. A ring over
// several nodes with NVLink has 16 to 24, by the network's cards; it is given as many as in a node.
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

// ---- calibrations -------------------------------------------------------------------------------

bool is_library(const std::string& name, std::string_view part) {
  return name.find(part) != std::string::npos;
}

/// Returns how many of the ranks share a node, where they are spread evenly.
int ranks_on_node(const RankSet& ranks) {
  return std::clamp(kGpusANode / ranks.stride, 1, ranks.size);
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
  const auto json = input::find_json(input::read_file(path, input::kDescription.bytes,
                                                      "give --calibration a recording or its JSON"),
                                     input::kDescription)
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

int64_t cold_nccl_bytes(const Gpu& gpu, int ranks, int on_node) {
  const bool is_over_nvlink = on_node > 1 && has_nvlink(gpu);
  const int channels = is_over_nvlink ? kNvlinkChannels : kOtherChannels;
  const int64_t in_node =
      kRingChannelBytes * channels + (is_over_nvlink ? nvls_bytes(gpu, on_node) : 0);
  if (ranks <= on_node) return in_node;
  // Each channel leaves the node from one of its GPUs, which take turns.
  return in_node + kMoreToSendOverNetwork * ((channels + on_node - 1) / on_node);
}

OutsideMemory outside_memory(const Gpu& gpu, const Schedule& schedule, int64_t communicators,
                             const Calibration* calibration) {
  const std::vector<Channel> channels = communicator_channels(schedule, communicators);
  OutsideMemory outside{.context_bytes = kContextBytes,
                        .modules_bytes = kModulesBytes,
                        .communicators = static_cast<int>(channels.size()),
                        .source = {}};
  if (calibration != nullptr) {
    outside.context_bytes = calibration->context_bytes;
    outside.modules_bytes = calibration->modules_bytes;
    outside.source = calibration->source;
  }
  for (const Channel channel : channels) {
    const int64_t measured = calibration ? calibration->nccl_bytes_a_communicator : 0;
    const RankSet ranks = schedule.ranks_of(channel);
    outside.nccl_bytes +=
        measured > 0 ? measured : cold_nccl_bytes(gpu, ranks.size, ranks_on_node(ranks));
  }
  return outside;
}

Calibration read_calibration(const std::string& path) {
  return path.ends_with(".json") ? from_json(path) : from_recording(path);
}

}  // namespace shardlens::planner
