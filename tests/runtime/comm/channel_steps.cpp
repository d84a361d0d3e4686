#include "tests/runtime/comm/channel_steps.h"

#include <random>
#include <vector>

namespace shardlens::tests {

using namespace runtime;
namespace {

using planner::Action;
using planner::ActionKind;
using planner::Channel;

constexpr int64_t kMostOfRank = 2000;  // elements of one rank's range

enum Purpose : uint64_t { kGather, kRegather, kReduce, kSum };

/// A multiple of 1/8 below 64: sums of thousands are exact in fp32.
float value_of(uint64_t seed, Purpose purpose, int rank, int64_t index) {
  uint64_t bits = seed;
  for (const uint64_t word :
       {uint64_t{purpose}, static_cast<uint64_t>(rank + 1), static_cast<uint64_t>(index + 1)}) {
    bits = (bits ^ word) * 0x9e3779b97f4a7c15u;
    bits ^= bits >> 29;
  }
  return static_cast<float>(bits % 1024) / 8 - 64;
}

/// One rank in one step.
class Step {
 public:
  Step(const Grid& grid, int rank, const Channels& channels, uint64_t seed, int64_t step)
      : grid_(grid), rank_(rank), channels_(channels), seed_(seed), step_(step) {
    std::minstd_rand random(static_cast<uint32_t>(seed));
    range_ = 1 + static_cast<int64_t>(random() % kMostOfRank);
  }

  std::string run() {
    auto gathered = own_ranges(kGather, grid_.shards);
    auto again = own_ranges(kRegather, grid_.regather_shards);
    const Ticket gather = begin_gather(*channels_.gather, gathered);
    const Ticket reduce = begin_reduce();
    const Ticket regather = channels_.regather ? begin_gather(*channels_.regather, again) : 0;
    channels_.gather->wait(gather);
    check_gathered(gathered, kGather, grid_.shards);
    channels_.reduce->wait(reduce);
    if (channels_.replicate != nullptr) {
      channels_.replicate->wait(channels_.replicate->all_reduce(
          operation("ALL_REDUCE"), output_.data(), range_, DType::fp32));
    }
    check_reduced();
    if (channels_.regather != nullptr) channels_.regather->wait(regather);
    check_gathered(again, kRegather, grid_.regather_shards);
    check_world();
    return fault_;
  }

 private:
  Operation operation(std::string_view kind) const { return {step_, kind, "block", 0}; }

  std::vector<float> own_ranges(Purpose purpose, int sharing) const {
    std::vector<float> values(static_cast<size_t>(sharing * range_), -1e9f);
    for (int64_t i = 0; i < range_ && sharing > 0; ++i) {
      values[static_cast<size_t>(rank_ % sharing * range_ + i)] =
          value_of(seed_, purpose, rank_, i);
    }
    return values;
  }

  Ticket begin_gather(Communicator& channel, std::vector<float>& values) const {
    const GatherBuffer buffer{values.data(), static_cast<int64_t>(values.size()), DType::fp32};
    return channel.all_gather(operation("ALL_GATHER"), {&buffer, 1});
  }

  Ticket begin_reduce() {
    for (int64_t i = 0; i < grid_.shards * range_; ++i) {
      input_.push_back(value_of(seed_, kReduce, rank_, i));
    }
    received_.resize(input_.size());
    output_.resize(static_cast<size_t>(range_));
    return channels_.reduce->reduce_scatter(
        operation("REDUCE_SCATTER"), {input_.data(), output_.data(), received_.data(), range_});
  }

  void check_gathered(const std::vector<float>& values, Purpose purpose, int sharing) {
    size_t at = 0;
    for (int peer = 0; peer < grid_.world_size && sharing > 0; ++peer) {
      if (peer / sharing != rank_ / sharing) continue;
      for (int64_t i = 0; i < range_; ++i) {
        expect(values[at++] == value_of(seed_, purpose, peer, i), "gather", peer, i);
      }
    }
    expect(at == values.size(), "size of gather", rank_, 0);
  }

  /// Computed over all ranks of the world, whatever the channels on the way.
  void check_reduced() {
    for (int64_t i = 0; i < range_; ++i) {
      double sum = 0;
      for (int peer = 0; peer < grid_.world_size; ++peer) {
        sum += value_of(seed_, kReduce, peer, rank_ % grid_.shards * range_ + i);
      }
      expect(output_[static_cast<size_t>(i)] == sum / grid_.world_size, "reduction", rank_, i);
    }
  }

  void check_world() {
    std::vector<double> values{value_of(seed_, kSum, rank_, 0), 1};
    world_sum(channels_, operation("SUM"), values);
    double sum = 0;
    for (int peer = 0; peer < grid_.world_size; ++peer) sum += value_of(seed_, kSum, peer, 0);
    expect(values == std::vector<double>{sum, static_cast<double>(grid_.world_size)}, "sum", rank_,
           0);
    world_barrier(channels_, operation("BARRIER"));
  }

  void expect(bool held, const char* what, int peer, int64_t index) {
    if (held || !fault_.empty()) return;
    fault_ = std::string(what) + " on rank " + std::to_string(rank_) + ", step " +
             std::to_string(step_) + ", of rank " + std::to_string(peer) + ", element " +
             std::to_string(index) + " is wrong";
  }

  const Grid& grid_;
  int rank_;
  const Channels& channels_;
  uint64_t seed_;
  int64_t step_;
  int64_t range_;  // elements of one rank
  std::vector<float> input_, received_, output_;
  std::string fault_;
};

}  // namespace

planner::Schedule schedule_over(const Grid& grid) {
  planner::Schedule schedule;
  schedule.strategy = planner::StrategyKind::fsdp;
  schedule.world_size = grid.world_size;
  schedule.shards = grid.shards;
  schedule.regather_shards = grid.regather_shards;
  planner::Bucket bucket;
  bucket.numel = kMostOfRank * grid.shards;
  schedule.groups = {{"block", {bucket}}};
  const int64_t range_bytes = kMostOfRank * 4;
  const auto add = [&](ActionKind kind, Channel channel, int64_t bytes) {
    Action& action = schedule.actions.emplace_back();
    action.kind = kind;
    action.group = 0;
    action.bucket = 0;
    action.channel = channel;
    action.bytes = bytes;
  };
  add(ActionKind::all_gather, Channel::gather, range_bytes);
  if (grid.regather_shards > 0) add(ActionKind::all_gather, Channel::regather, range_bytes);
  add(ActionKind::reduce_scatter, Channel::reduce, range_bytes * grid.shards);
  if (grid.shards < grid.world_size) {
    add(ActionKind::all_reduce, Channel::replicate, range_bytes);
  }
  return schedule;
}

std::string run_steps(const Grid& grid, int rank, const Channels& channels, uint64_t seed,
                      int steps) {
  for (int step = 0; step < steps; ++step) {
    const uint64_t seed_of_step = seed * 1000 + static_cast<uint64_t>(step);
    const std::string fault = Step(grid, rank, channels, seed_of_step, step).run();
    if (!fault.empty()) return fault;
  }
  return "ok";
}

}  // namespace shardlens::tests
