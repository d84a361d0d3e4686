// W ranks as threads of this process over shared memory, which meet as the runtime's ranks do, and
// a small driver that trains on them, for the numerics tests.
#pragma once

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "models/model.h"
#include "planner/schedule/schedule.h"
#include "runtime/comm/board/shared_region.h"
#include "runtime/execute/executor.h"
#include "runtime/execute/rank_state.h"
#include "runtime/launch/rendezvous.h"
#include "runtime/train/batches.h"
#include "runtime/train/job.h"

namespace shardlens::tests {

/// Calls body(rank, channels) on schedule.world_size threads; rethrows what the first of them
/// throws: the others then throw that they were stopped.
inline void run_ranks(const planner::Schedule& schedule,
                      const std::function<void(int rank, runtime::Channels)>& body) {
  runtime::Job job;
  job.train = schedule;
  job.strategy.world_size = schedule.world_size;
  job.strategy.communicator = planner::CommunicatorKind::local;
  const auto region = runtime::SharedRegion::create(region_bytes(job));
  const auto board = runtime::Board::initialise(region.data(), schedule.world_size);
  std::exception_ptr failure;
  std::once_flag first;
  const auto rank_main = [&](int rank) {
    at::set_num_threads(1);
    const auto streams = runtime::make_inline_streams();
    try {
      const auto links = join(job, rank, region.data(), *streams);
      body(rank, links->channels());
    } catch (const std::exception& error) {
      std::call_once(first, [&] { failure = std::current_exception(); });
      board.abort_note().raise(error.what());
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < schedule.world_size; ++rank) threads.emplace_back(rank_main, rank);
  for (std::thread& thread : threads) thread.join();
  if (failure) std::rethrow_exception(failure);
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

/// The mean over ranks of every step's loss, `steps` steps from the first of epoch 0 on, with
/// `global_batch` samples a step whatever the world size.
inline std::vector<double> train_losses(const models::ModelSpec& spec, const models::ImageSet& data,
                                        const planner::Strategy& strategy, int steps,
                                        const runtime::ExecutorOptions& options = {}) {
  const planner::Schedule schedule = build_schedule(spec, strategy, planner::Pass::train);
  std::vector<double> losses(static_cast<size_t>(steps));
  run_ranks(schedule, [&](int rank, runtime::Channels channels) {
    runtime::RankState state(spec, schedule, rank, at::kCPU, options.optimizer);
    const auto streams = runtime::make_inline_streams();
    draw_into(state, spec, 0);
    runtime::Executor executor(spec, state, *streams, channels, options);
    const runtime::Batches batches(data);
    const at::Tensor order = runtime::sample_order(data.count, 0, 0, rank, strategy.world_size);
    int64_t first = 0;
    for (int step = 0; step < steps; ++step) {
      executor.run(schedule, step, [&] {
        const int64_t begin = std::exchange(first, first + strategy.batch);
        return batches.at(order.narrow(0, begin, strategy.batch));
      });
      double loss = executor.loss().item<double>();
      world_sum(channels, {.step = step, .kind = "SUM", .group = "loss"}, {&loss, 1});
      if (rank == 0) losses[step] = loss / strategy.world_size;
    }
  });
  return losses;
}

}  // namespace shardlens::tests
