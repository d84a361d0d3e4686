// The settings of a run as the user gave them, and what the plainest of them mean.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/device.h"
#include "base/dtype.h"
#include "planner/config/choices.h"

namespace shardlens::planner {

/// The settings of a run as the user gave them. strategy_of() and its neighbours parse
/// those that are still text, such as --wrap.
struct Config {
  std::string model = "vit-tutorial";
  std::string data = "auto";
  std::string init;
  int64_t seq = 0;  // 0: the model's own
  int64_t batch = 64;
  int64_t epochs = 1;
  int64_t steps = 0;  // 0: as many as the epochs have
  double lr = 1e-3;
  int64_t seed = 0;

  OptimizerKind optimizer = OptimizerKind::adam;
  double momentum = 0;
  double weight_decay = 0;
  double clip_norm = 0;  // 0: no clipping
  std::string loss_scale = "auto";

  StrategyKind strategy = StrategyKind::fsdp;
  int64_t replicas = 1;
  ReshardChoice reshard_after_forward{};
  DType param_dtype = DType::fp32;
  DType reduce_dtype = DType::fp32;
  OutputDType output_dtype = OutputDType::automatic;
  bool cast_inputs = true;
  Offload offload = Offload::none;
  int64_t forward_prefetch = 1;
  int64_t backward_prefetch = 1;
  std::string wrap = "block";
  std::string ignore;
  std::string freeze;
  std::string keep_fp32;
  int64_t accumulate = 1;
  Sync sync = Sync::every;
  Recompute recompute{};
  AttentionChoice attention = AttentionChoice::automatic;
  CommunicatorChoice communicator = CommunicatorChoice::automatic;
  int64_t communicators = 2;
  DeviceChoice device{};
  std::string capacity;
  int64_t workers = 1;
  int64_t world = 0;       // 0: as many ranks as workers
  int64_t solo_rank = -1;  // -1: none
  int64_t threads = 1;
  double timeout_s = 60;
  int64_t max_failures = 0;  // -1: any number
  int64_t give_up_after = 10;
  double grace_s = 30;

  std::string storage = "runs";
  std::string name;
  bool fresh = false;
  bool anyway = false;
  std::string checkpoint_every = "auto";
  Switch checkpoint_async = Switch::on;
  int64_t keep = 2;
  KeepRule keep_by = KeepRule::newest;
  std::string profile = "off";
  std::string profile_dir;  // empty: the run's
  int64_t log_every = 10;
};

/// Returns the device that --device names. The runtime resolves `--device auto` first.
/// Throws std::invalid_argument for an unknown device or GPU.
Device device_of(const Config& config);

/// Reads --capacity, in bytes; nothing where it is not given. Throws std::invalid_argument.
std::optional<int64_t> capacity_of(const Config& config);

/// Returns the dtype to which logits are cast before the loss; nothing: they stay as computed.
std::optional<DType> output_dtype_of(const Config& config);

/// Returns how many ranks the run has in all, including those that other hosts would run.
int64_t world_size_of(const Config& config);

/// Returns the same configuration for a process in another folder: with absolute paths for files of
/// the model, the data and the start weights. Relative paths begin at `base`; empty: at this
/// process's current folder.
Config with_absolute_inputs(Config config, const std::filesystem::path& base = {});

}  // namespace shardlens::planner
