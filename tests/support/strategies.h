// Every strategy there is, for tests that must hold for all: each value of each strategy flag at
// least once, and flags that meet in one place in pairs. Whoever adds a strategy adds its rows.
#pragma once

#include <string>
#include <vector>

#include "planner/strategy.h"

namespace shardlens::test {

struct NamedStrategy {
  std::string name;
  planner::Strategy strategy;
};

/// Of `world_size` ranks; single, which has one, is among them.
inline std::vector<NamedStrategy> all_strategies(int world_size) {
  using planner::DType, planner::Reshard, planner::StrategyKind;
  std::vector<NamedStrategy> all;
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    const std::string suffix = " " + std::string(to_string(dtype));
    for (const auto& [word, reshard] :
         {std::pair("auto", Reshard::automatic), std::pair("true", Reshard::yes),
          std::pair("false", Reshard::no)}) {
      all.push_back({"fsdp reshard=" + std::string(word) + suffix,
                     {.kind = StrategyKind::fsdp,
                      .world_size = world_size,
                      .reshard_after_forward = reshard,
                      .param_dtype = dtype}});
    }
    all.push_back({"ddp" + suffix,
                   {.kind = StrategyKind::ddp, .world_size = world_size, .param_dtype = dtype}});
    all.push_back({"single" + suffix, {.kind = StrategyKind::single, .param_dtype = dtype}});
  }
  return all;
}

}  // namespace shardlens::test
