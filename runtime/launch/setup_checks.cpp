#include "runtime/launch/setup_checks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "planner/config/options.h"
#include "runtime/comm/board/wait_for_peer.h"
#include "runtime/launch/rendezvous_store.h"

namespace shardlens::runtime {

namespace {

/// Returns a GPU's UUID in nvidia-smi's form.
std::string gpu_text(const GpuUuid& gpu) {
  std::string text = "GPU-";
  for (size_t i = 0; i < gpu.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    text += fmt::format("{:02x}", std::to_integer<unsigned>(gpu[i]));
  }
  return text;
}

/// Computes FNV-1a with 32 bits, which a double holds exactly when summed over ranks.
double digest(std::string_view text) {
  uint32_t hash = 2166136261U;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
  return hash;
}

/// Returns the settings that must be the same on every rank. Each rank may decide for itself where
/// it writes, and how long it waits.
std::vector<std::pair<std::string, std::string>> common_settings(const Job& job) {
  static const std::set<std::string> own = {"storage",     "name",    "fresh",  "profile",
                                            "profile_dir", "threads", "timeout"};
  std::vector<std::pair<std::string, std::string>> settings;
  const auto config = nlohmann::ordered_json::parse(to_json(job.config));
  for (const auto& [key, value] : config.items()) {
    if (own.contains(key)) continue;
    std::string flag = key;
    std::replace(flag.begin(), flag.end(), '_', '-');
    settings.emplace_back("--" + flag, value.is_string() ? value.get<std::string>() : value.dump());
  }
  std::string parameters;
  for (const models::ParameterSpec& parameter : job.spec.parameters) parameters += parameter.name;
  settings.emplace_back("model", parameters);
  settings.emplace_back("schedule", to_text(job.train));
  return settings;
}

/// Holds the sizes of groups, in elements, and how many units use the largest group.
struct Shares {
  int64_t all = 0;
  int largest = -1;
  int64_t largest_numel = 0;
  int units = 0;  // of the largest
};

Shares shares_of(const planner::Schedule& schedule) {
  Shares shares;
  for (size_t i = 0; i < schedule.groups.size(); ++i) {
    int64_t numel = 0;
    for (const planner::Bucket& bucket : schedule.groups[i].buckets) {
      if (bucket.whole) continue;
      for (const planner::BucketEntry& entry : bucket.entries) numel += entry.numel;
    }
    shares.all += numel;
    if (numel <= shares.largest_numel) continue;
    shares.largest_numel = numel;
    shares.largest = static_cast<int>(i);
  }
  for (const planner::Action& action : schedule.actions) {
    const bool is_forward = action.kind == planner::ActionKind::forward && action.microbatch == 0;
    if (is_forward && action.group == shares.largest) ++shares.units;
  }
  return shares;
}

/// Warns if one group holds most of the model. A block has two units, and so has a tied head; more
/// units than that could be gathered one by one.
std::string warning_about_root(const Job& job) {
  constexpr int kUnitsOfBlock = 2;
  if (job.train.shards == 1) return "";
  const Shares shares = shares_of(job.train);
  if (2 * shares.largest_numel <= shares.all || shares.units <= kUnitsOfBlock) return "";
  const char* const fix = job.own && job.strategy.wrap.kind == planner::WrapKind::block
                              ? "give its units groups of their own"
                              : "give --wrap block";
  return fmt::format(
      "group {} holds {} of {} parameters ({} %) in {} units, and all of them are gathered at "
      "once; {} for less memory",
      job.train.groups[shares.largest].name, shares.largest_numel, shares.all,
      100 * shares.largest_numel / shares.all, shares.units, fix);
}

}  // namespace

bool needs_own_gpu(const Job& job) {
  return job.device.kind == DeviceKind::cuda &&
         job.strategy.communicator == planner::CommunicatorKind::nccl;
}

void expect_own_gpu(const Board& board, int rank, const GpuUuid& gpu,
                    std::chrono::milliseconds deadline) {
  board.set_gpu(rank, gpu);
  GpuUuid theirs;
  for (int peer = 0; peer < rank; ++peer) {
    wait_for_peer(board, rank, peer, "open its GPU", deadline,
                  [&] { return board.gpu(peer, theirs); });
    if (theirs != gpu) continue;
    throw std::invalid_argument(fmt::format(
        "ranks {} and {} are on the same GPU ({}), but NCCL allows one rank per GPU; check that "
        "CUDA_VISIBLE_DEVICES names each GPU once, give fewer --workers, or --communicator gloo",
        peer, rank, gpu_text(gpu)));
  }
}

void exchange_gpus(RendezvousStore& store, int rank, const GpuUuid& gpu) {
  const auto name = [](int of) { return fmt::format("gpu/{}", of); };
  store.set(name(rank), {reinterpret_cast<const char*>(gpu.data()), gpu.size()});
  for (int peer = 0; peer < rank; ++peer) {
    const std::string told = store.get(name(peer), peer, "open its GPU");
    GpuUuid theirs{};
    std::memcpy(theirs.data(), told.data(), std::min(told.size(), theirs.size()));
    store.board().set_gpu(peer, theirs);
  }
}

void expect_same_job(const Job& job, int rank, const Channels& channels) {
  if (!job.notice.empty() || job.strategy.world_size == 1) return;
  const auto settings = common_settings(job);
  std::vector<double> sums;
  for (const auto& [name, value] : settings) sums.push_back(digest(value));
  const std::vector<double> own = sums;
  world_sum(channels, {.step = 0, .kind = "SUM", .group = "flags"}, sums);
  for (size_t i = 0; i < own.size(); ++i) {
    if (sums[i] == own[i] * job.strategy.world_size) continue;
    const auto& [name, value] = settings[i];
    const std::string said = name.starts_with("--") ? fmt::format(" {}", value) : "";
    throw std::invalid_argument(
        fmt::format("rank {} was started with {}{}, others with a different one; start every rank "
                    "with the same program and flags",
                    rank, name, said));
  }
}

std::vector<std::string> warnings_about(const Job& job) {
  std::vector<std::string> warnings;
  const auto add = [&](std::string warning) {
    if (!warning.empty()) warnings.push_back(std::move(warning));
  };
  add(warning_about_root(job));
  const int world_size = job.strategy.world_size;
  if (job.found_data.train_samples < world_size) {
    add(
        fmt::format("{} training samples for {} ranks: some ranks train on the same samples; give "
                    "--workers {} or less",
                    job.found_data.train_samples, world_size, job.found_data.train_samples));
  }
  return warnings;
}

}  // namespace shardlens::runtime
