// Every strategy there is, for tests that must hold for all: each value of each strategy flag at
// least once, and flags that interact in pairs. A new strategy needs new rows here.
#pragma once

#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <random>
#include <string>
#include <vector>

#include "planner/config/arguments.h"
#include "planner/config/strategy.h"
#include "tests/support/sample.h"

namespace shardlens::tests {

struct NamedStrategy {
  std::string name;  // the flags
  planner::Config config;
  planner::Strategy strategy;
};

inline NamedStrategy named_strategy(const std::vector<std::string>& flags, int world_size) {
  NamedStrategy made;
  for (const std::string& flag : flags) made.name += (made.name.empty() ? "" : " ") + flag;
  made.config = planner::parse_arguments(flags).config;
  made.config.workers = made.config.strategy == planner::StrategyKind::single ? 1 : world_size;
  made.config.device = device_named("cpu");
  made.strategy = planner::strategy_of(made.config);
  return made;
}

using Flags = std::vector<std::string>;

inline bool divides_in_four(int world_size) { return world_size >= 4 && world_size % 4 == 0; }

inline std::vector<Flags> offload_flags(int world_size) {
  std::vector<Flags> all = {
      {"--offload", "params", "--param-dtype", "bf16"},
      {"--offload", "params", "--clip-norm", "0.5", "--reduce-dtype", "bf16"},
      {"--offload", "params", "--accumulate", "2", "--strategy", "ddp"},
      {"--offload", "params", "--wrap", "size:200000", "--recompute", "full"},
      {"--offload", "optimizer"},
      {"--offload", "optimizer", "--param-dtype", "bf16", "--reduce-dtype", "bf16"},
      {"--offload", "optimizer", "--reshard-after-forward", "false", "--clip-norm", "0.5"},
      {"--offload", "optimizer", "--strategy", "single", "--freeze", ".*ln_[12]"},
      {"--offload", "optimizer", "--accumulate", "2", "--sync", "last"},
      {"--offload", "all"},
      {"--offload", "all", "--param-dtype", "bf16", "--keep-fp32", ".*ln_[12]"},
      {"--offload", "all", "--param-dtype", "fp16", "--reduce-dtype", "fp16", "--loss-scale",
       "1024"},
      {"--offload", "all", "--accumulate", "2"},
      {"--offload", "all", "--accumulate", "2", "--clip-norm", "0.5", "--reduce-dtype", "bf16"},
      {"--offload", "all", "--accumulate", "2", "--strategy", "single", "--clip-norm", "0.5"},
      {"--offload", "all", "--strategy", "ddp", "--param-dtype", "bf16"},
      {"--offload", "all", "--reshard-after-forward", "false", "--ignore", "module:.*ln_1"},
      {"--offload", "all", "--optimizer", "sgd", "--lr", "0.05", "--momentum", "0.9"},
      {"--offload", "all", "--wrap", "size:200000", "--recompute", "full"},
  };
  if (!divides_in_four(world_size)) return all;
  const std::vector<Flags> parts = {
      {"--offload", "all", "--reshard-after-forward", "2", "--param-dtype", "bf16"},
      {"--offload", "all", "--strategy", "hsdp", "--replicas", "2", "--clip-norm", "0.5"},
      {"--offload", "params", "--strategy", "hsdp", "--replicas", "2", "--accumulate", "2"},
      {"--offload", "optimizer", "--strategy", "hsdp", "--replicas", "2", "--ignore", "conv_proj"},
  };
  all.insert(all.end(), parts.begin(), parts.end());
  return all;
}

/// True if a strategy of the table can be tried on a model: names of parameters in the table are
/// those of a vision transformer, and this host has no room for a whole llama offloaded by one
/// rank.
inline bool fits_model(const Flags& strategy, const std::string& model) {
  const auto has = [&](const char* word) {
    return std::count(strategy.begin(), strategy.end(), word) > 0;
  };
  if (model == "llama-1b" && has("--offload") && (has("single") || has("ddp"))) return false;
  const bool names = std::any_of(strategy.begin(), strategy.end(), [](const std::string& flag) {
    return flag == "--ignore" || flag == "--freeze" || flag == "--keep-fp32" ||
           flag.starts_with("module:");
  });
  return !names || model.starts_with("vit");
}

/// The flags of each strategy that `world_size` ranks can have.
inline std::vector<Flags> all_strategy_flags(int world_size) {
  std::vector<Flags> all = offload_flags(world_size);
  for (const char* dtype : {"fp32", "bf16", "fp16"}) {
    for (const char* reshard : {"auto", "true", "false"}) {
      all.push_back({"--param-dtype", dtype, "--reshard-after-forward", reshard});
    }
    all.push_back({"--param-dtype", dtype, "--strategy", "ddp"});
    all.push_back({"--param-dtype", dtype, "--strategy", "single"});
    // After its first scale, fp16 overflows on one number of ranks and not on another.
    all.push_back({"--param-dtype", dtype, "--reduce-dtype", dtype, "--clip-norm", "0.5",
                   "--loss-scale", "1024"});
  }
  const std::vector<Flags> more = {
      {"--reduce-dtype", "bf16"},
      {"--reduce-dtype", "fp16", "--param-dtype", "fp16"},
      {"--reduce-dtype", "bf16", "--strategy", "ddp"},
      {"--output-dtype", "bf16"},
      {"--forward-prefetch", "0", "--backward-prefetch", "0"},
      {"--forward-prefetch", "3", "--backward-prefetch", "2"},
      {"--wrap", "root"},
      {"--wrap", "size:60000"},
      {"--wrap", "size:200000", "--recompute", "full"},
      {"--wrap", "module:.*encoder_layer_[02468]"},
      {"--ignore", "module:.*ln_1|class_token"},
      {"--ignore", "conv_proj", "--clip-norm", "0.5", "--reduce-dtype", "bf16"},
      {"--freeze", "conv_proj|.*encoder_layer_[01]"},
      {"--freeze", ".*ln_[12]", "--recompute", "every:2"},
      {"--keep-fp32", ".*ln_[12]", "--param-dtype", "bf16"},
      {"--recompute", "full"},
      {"--recompute", "every:3", "--strategy", "ddp"},
      {"--accumulate", "2"},
      {"--accumulate", "3", "--sync", "last"},
      {"--accumulate", "2", "--clip-norm", "0.5", "--reduce-dtype", "bf16"},
      {"--accumulate", "2", "--sync", "last", "--clip-norm", "0.5"},
      {"--accumulate", "2", "--strategy", "ddp"},
      {"--accumulate", "2", "--strategy", "ddp", "--sync", "last", "--recompute", "full"},
      {"--accumulate", "2", "--strategy", "single", "--clip-norm", "0.5"},
      {"--accumulate", "2", "--reshard-after-forward", "false", "--ignore", "module:.*ln_1"},
      {"--clip-norm", "0.5"},
      {"--clip-norm", "0.5", "--strategy", "ddp"},
      {"--loss-scale", "1024"},
      {"--loss-scale", "auto", "--param-dtype", "fp16", "--accumulate", "2"},
      {"--optimizer", "adamw", "--weight-decay", "0.1"},
      {"--optimizer", "sgd", "--lr", "0.05"},
      {"--optimizer", "sgd", "--lr", "0.05", "--momentum", "0.9", "--weight-decay", "0.01"},
      {"--strategy", "FULL_SHARD"},
      {"--strategy", "SHARD_GRAD_OP"},
      {"--strategy", "NO_SHARD"},
  };
  all.insert(all.end(), more.begin(), more.end());
  if (!divides_in_four(world_size)) return all;
  const std::string half = std::to_string(world_size / 2);
  const std::vector<Flags> parts = {
      {"--reshard-after-forward", "2"},
      {"--reshard-after-forward", half, "--accumulate", "2"},
      {"--reshard-after-forward", "2", "--ignore", "module:.*ln_1", "--param-dtype", "bf16"},
      {"--reshard-after-forward", "2", "--recompute", "full", "--wrap", "size:200000"},
      {"--strategy", "hsdp", "--replicas", "2"},
      {"--strategy", "hsdp", "--replicas", half, "--clip-norm", "0.5"},
      {"--strategy", "hsdp", "--replicas", "2", "--reduce-dtype", "bf16", "--accumulate", "2"},
      {"--strategy", "hsdp", "--replicas", "2", "--accumulate", "2", "--sync", "last"},
      {"--strategy", "hsdp", "--replicas", "2", "--ignore", "module:.*ln_1"},
      {"--strategy", "HYBRID_SHARD", "--replicas", "2", "--forward-prefetch", "2"},
  };
  all.insert(all.end(), parts.begin(), parts.end());
  return all;
}

/// Flags that may be combined, drawn one by one.
inline Flags random_strategy_flags(std::mt19937_64& engine, int world_size) {
  using Choices = std::vector<Flags>;
  const auto half = std::to_string(world_size / 2);
  const std::vector<Choices> knobs = {
      {{}, {"--strategy", "ddp"}, {"--strategy", "hsdp", "--replicas", half}},
      {{}, {"--param-dtype", "bf16"}},
      {{}, {"--reduce-dtype", "bf16"}, {"--reduce-dtype", "fp16"}},
      {{}, {"--reshard-after-forward", "true"}, {"--reshard-after-forward", "false"}},
      {{}, {"--forward-prefetch", "0"}, {"--forward-prefetch", "2"}},
      {{}, {"--backward-prefetch", "0"}, {"--backward-prefetch", "3"}},
      {{}, {"--wrap", "root"}, {"--wrap", "size:50000"}, {"--wrap", "module:.*layer_[13]"}},
      {{}, {"--ignore", ".*ln_1.*|class_token"}},
      {{}, {"--freeze", "conv_proj|.*encoder_layer_0"}, {"--freeze", ".*in_proj_bias"}},
      {{}, {"--keep-fp32", ".*ln_[12]"}},
      {{}, {"--accumulate", "2"}, {"--accumulate", "3"}},
      {{}, {"--sync", "last"}},
      {{}, {"--recompute", "full"}, {"--recompute", "every:2"}},
      {{}, {"--clip-norm", "0.5"}},
      {{}, {"--offload", "params"}, {"--offload", "optimizer"}, {"--offload", "all"}},
      {{}, {"--loss-scale", "512"}},
      {{}, {"--optimizer", "adamw", "--weight-decay", "0.1"}}};
  Flags flags;
  for (const Choices& choices : knobs) {
    const auto& chosen = choices[engine() % choices.size()];
    flags.insert(flags.end(), chosen.begin(), chosen.end());
  }
  return flags;
}

/// The flags of each strategy that fits the model, or of one in `strategies_per_sample` of them,
/// others with each seed.
inline std::vector<Flags> fitting_strategy_flags(int world_size, const std::string& model,
                                                 int64_t strategies_per_sample) {
  Sample sample(strategies_per_sample);
  std::vector<Flags> fitting;
  for (const Flags& flags : all_strategy_flags(world_size)) {
    if (fits_model(flags, model) && sample.has_next()) fitting.push_back(flags);
  }
  return fitting;
}

inline std::vector<NamedStrategy> all_strategies(int world_size) {
  std::vector<NamedStrategy> all;
  for (const auto& flags : all_strategy_flags(world_size)) {
    all.push_back(named_strategy(flags, world_size));
  }
  return all;
}

}  // namespace shardlens::tests
