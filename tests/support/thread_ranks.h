// W ranks as threads of this process over the shared-memory communicator, and a small driver that
// trains on them: what the numerics tests run.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "models/model.h"
#include "planner/schedule.h"
#include "runtime/batches.h"
#include "runtime/comm/local.h"
#include "runtime/comm/shared_region.h"
#include "runtime/executor.h"
#include "runtime/rank_state.h"

namespace shardlens::test {

inline runtime::LocalLayout layout_for(const planner::Schedule& schedule) {
  runtime::LocalLayout layout{.world_size = schedule.world_size};
  for (const planner::Action& action : schedule.actions) {
    int64_t& largest = action.channel == planner::Channel::gather ? layout.max_gather_bytes
                                                                  : layout.max_reduce_bytes;
    if (action.channel != planner::Channel::none) largest = std::max(largest, action.bytes);
  }
  return layout;
}

/// Calls body(rank, channels) on schedule.world_size threads; rethrows what one of them throws.
inline void run_ranks(const planner::Schedule& schedule,
                      const std::function<void(int rank, runtime::Channels)>& body) {
  const runtime::LocalLayout layout = layout_for(schedule);
  const size_t bytes = runtime::LocalCommunicator::bytes(layout);
  const auto region = runtime::SharedRegion::create(2 * bytes);
  std::vector<std::exception_ptr> failures(static_cast<size_t>(schedule.world_size));
  const auto rank_main = [&](int rank) {
    at::set_num_threads(1);
    runtime::LocalOptions options;
    options.layout = layout;
    options.rank = rank;
    runtime::LocalCommunicator gather(region.data(), options);
    runtime::LocalCommunicator reduce(region.data() + bytes, options);
    try {
      body(rank, {&gather, &reduce});
    } catch (const std::exception& error) {
      failures[rank] = std::current_exception();
      reduce.abort(error.what());
      gather.abort(error.what());
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < schedule.world_size; ++rank) threads.emplace_back(rank_main, rank);
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

/// The start weights that every numerics test uses.
inline void draw_into(runtime::RankState& state, const models::ModelSpec& spec, uint64_t seed) {
  models::draw_parameters(spec, seed, [&](int parameter, const at::Tensor& value) {
    state.set_parameter(parameter, value);
  });
}

inline planner::Strategy strategy_of(planner::StrategyKind kind, int world_size, int64_t batch,
                                     planner::Reshard reshard = planner::Reshard::yes) {
  return {.kind = kind,
          .world_size = world_size,
          .reshard_after_forward = reshard,
          .communicator =
              world_size == 1 ? planner::CommunicatorKind::none : planner::CommunicatorKind::local,
          .batch = batch};
}

/// Mean over ranks of every step's loss, `steps` steps from the first of epoch 0 on, with
/// `global_batch` samples a step whatever the world size.
inline std::vector<double> train_losses(const models::ModelSpec& spec,
                                        const runtime::ImageSet& data,
                                        const planner::Strategy& strategy, int steps) {
  const planner::Schedule schedule = build_schedule(spec, strategy, planner::Pass::train);
  std::vector<double> losses(static_cast<size_t>(steps));
  run_ranks(schedule, [&](int rank, runtime::Channels channels) {
    runtime::RankState state(spec, schedule, rank, at::kCPU);
    const auto streams = runtime::make_inline_streams();
    draw_into(state, spec, 0);
    runtime::Executor executor(spec, state, *streams, channels, {});
    const runtime::Batches batches(data);
    const at::Tensor order = runtime::sample_order(data.count, 0, 0, rank, strategy.world_size);
    for (int step = 0; step < steps; ++step) {
      executor.run(schedule, step, [&] {
        return batches.at(order.narrow(0, step * strategy.batch, strategy.batch));
      });
      double loss = executor.loss().item<double>();
      channels.reduce->sum({.step = step, .kind = "SUM", .group = "loss"}, {&loss, 1});
      if (rank == 0) losses[step] = loss / strategy.world_size;
    }
  });
  return losses;
}

}  // namespace shardlens::test
