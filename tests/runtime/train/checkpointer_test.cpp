// Saves a rank's state in a checkpoint and restores it, in one process, without training.
#include "runtime/train/checkpointer.h"
#include "models/families.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <vector>

#include "runtime/comm/board/shared_region.h"
#include "runtime/execute/executor.h"
#include "tests/support/memory_folder.h"
#include "tests/support/strategies.h"

using namespace shardlens;
using namespace shardlens::runtime;

namespace {

Job make_job(const tests::NamedStrategy& named) {
  Job job;
  job.spec = models::make_spec("small", models::VitSizes{.image_px = 8,
                                                         .patch_px = 4,
                                                         .channels = 1,
                                                         .layers = 4,
                                                         .heads = 2,
                                                         .width = 16,
                                                         .mlp_width = 24,
                                                         .classes = 4});
  job.config = named.config;
  job.strategy = named.strategy;
  job.checkpointing = {.wanted = true, .asynchronous = false};
  job.train = build_schedule(job.spec, job.strategy, planner::Pass::train);
  return job;
}

/// Runs every rank of a job, one after the other in this thread.
class Ranks {
 public:
  explicit Ranks(const std::vector<std::string>& flags, int world_size)
      : job(make_job(tests::named_strategy(flags, world_size))),
        region_(SharedRegion::create(Board::bytes(world_size))),
        board_(Board::initialise(region_.data(), world_size)) {
    const ExecutorOptions options = executor_options(job.config);
    for (int rank = 0; rank < world_size; ++rank) {
      states.push_back(
          std::make_unique<RankState>(job.spec, job.train, rank, at::kCPU, options.optimizer));
      scales.emplace_back(options.gradient_scale, at::kCPU);
    }
  }

  /// Rank 0 waits for the others, so it comes last.
  void save(const std::string& folder, const CheckpointState& position) {
    for (int rank = static_cast<int>(states.size()) - 1; rank >= 0; --rank) {
      Checkpointer checkpointer = make(folder, rank);
      checkpointer.save(position, {.logged = {.sum = rank + 0.5, .batches = 3}});
    }
  }
  CheckpointState restore(const std::string& folder, int64_t step) {
    job.resume = folder + "/checkpoints/step-" + fmt::format("{:08}", step);
    CheckpointState state;
    for (size_t rank = 0; rank < states.size(); ++rank) {
      state = make(folder, static_cast<int>(rank)).restore();
    }
    return state;
  }

  /// Each rank's masters, moments and the gathered copies.
  std::vector<at::Tensor> tensors() {
    std::vector<at::Tensor> all;
    for (auto& state : states) {
      for (size_t group = 0; group < job.train.groups.size(); ++group) {
        for (size_t i = 0; i < job.train.groups[group].buckets.size(); ++i) {
          const BucketState& held = state->bucket(static_cast<int>(group), static_cast<int>(i));
          all.insert(all.end(), {held.master, held.cast, held.parameters});
          all.insert(all.end(), held.moments.begin(), held.moments.end());
        }
      }
    }
    return all;
  }

  const Board& board() const { return board_; }

  Job job;
  std::vector<std::unique_ptr<RankState>> states;
  std::vector<GradientScale> scales;

 private:
  Checkpointer make(const std::string& folder, int rank) {
    return Checkpointer(job, rank, folder, board_, *states[rank], scales[rank]);
  }

  SharedRegion region_;
  Board board_;
};

/// Elements that belong to no tensor (padding) are zero, as training keeps them.
void fill(Ranks& ranks) {
  for (auto& state : ranks.states) {
    for (const StateRange& range : state->ranges()) {
      BucketState& bucket = state->bucket(range.group, range.bucket);
      const auto set = [&](const at::Tensor& tensor, double offset) {
        // The same on every rank that holds the element.
        const at::Tensor values = at::arange(range.begin, range.begin + range.numel, at::kFloat);
        tensor.narrow(0, range.shard_begin, range.numel)
            .copy_(values * 1e-3 + range.parameter + offset);
      };
      set(bucket.master, 0.25);
      for (const at::Tensor& moment : bucket.moments) set(moment, 100.0);
    }
    state->renew_casts();
    state->step_count().fill_(7);
  }
}

}  // namespace

TEST_CASE("a state is the same after a checkpoint, whatever its layout", "[checkpoint]") {
  for (const int world_size : {1, 4}) {
    for (const auto& flags : tests::all_strategy_flags(world_size)) {
      const auto named = tests::named_strategy(flags, world_size);
      if (named.strategy.world_size != world_size) continue;
      INFO(world_size << " ranks: " << named.name);
      Ranks before(flags, world_size), after(flags, world_size);
      fill(before);
      const tests::MemoryFolder folder;
      before.save(folder.path(), {.step = 9, .epoch = 1});
      const CheckpointState state = after.restore(folder.path(), 9);
      CHECK(state.step == 9);
      CHECK(Checkpointer::progress_of(state, world_size - 1, world_size).logged.sum ==
            world_size - 0.5);
      CHECK(after.states.back()->step_count().item<double>() == 7);
      const auto expected = before.tensors(), found = after.tensors();
      REQUIRE(found.size() == expected.size());
      for (size_t i = 0; i < found.size(); ++i) CHECK(at::equal(found[i], expected[i]));
    }
  }
}

TEST_CASE("random numbers and the loss scale continue where they were", "[checkpoint]") {
  const std::vector<std::string> flags = {"--param-dtype", "fp16"};
  const tests::MemoryFolder folder;
  Ranks before(flags, 1), after(flags, 1);
  restore({.scale = 2048, .steps_without_overflow = 17}, before.scales[0]);
  at::Generator& generator = const_cast<at::Generator&>(at::detail::getDefaultCPUGenerator());
  const at::Tensor at_first = generator.get_state();
  at::Tensor drawn;
  {
    Checkpointer checkpointer(before.job, 0, folder.path(), before.board(), *before.states[0],
                              before.scales[0]);
    at::rand({3});
    checkpointer.save({.step = 1}, {});
    drawn = at::rand({5});
  }
  generator.set_state(at_first);
  after.restore(folder.path(), 1);
  CHECK(at::equal(at::rand({5}), drawn));
  REQUIRE(state_of(after.scales[0]).has_value());
  CHECK(state_of(after.scales[0])->scale == 2048);
  CHECK(state_of(after.scales[0])->steps_without_overflow == 17);
}
