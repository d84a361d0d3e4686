#include "runtime/train/checkpointer.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "planner/config/optimizer_options.h"
#include "planner/config/options.h"
#include "planner/schedule/checkpoints.h"
#include "profiler/recorder/recorder.h"
#include "runtime/checkpoint/checkpoint_reader.h"
#include "runtime/checkpoint/run_directory.h"
#include "runtime/execute/pinned_memory.h"
#include "runtime/train/progress.h"

namespace shardlens::runtime {

namespace {

using Clock = std::chrono::steady_clock;
using profiler::Category;

constexpr const char* kStagingLabel = "checkpoint";
constexpr int64_t kFloatBytes = sizeof(float);

std::span<const std::byte> bytes_of(const at::Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

std::span<std::byte> writable_bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()};
}

/// Fills a 1D fp32 tensor with a stored tensor's bytes from `begin_bytes` on. If the tensor is on a
/// device, the bytes go through host memory.
void fill(const at::Tensor& held, CheckpointReader& reader, const std::string& stored,
          int64_t begin_bytes) {
  if (held.is_cpu()) return reader.read(stored, begin_bytes, writable_bytes_of(held));
  constexpr int64_t kMostNumel = 4 << 20;
  std::vector<float> memory(static_cast<size_t>(std::min(kMostNumel, held.numel())));
  for (int64_t at = 0; at < held.numel(); at += kMostNumel) {
    const int64_t numel = std::min(kMostNumel, held.numel() - at);
    const at::Tensor piece = at::from_blob(memory.data(), {numel}, at::kFloat);
    reader.read(stored, begin_bytes + at * kFloatBytes, writable_bytes_of(piece));
    held.narrow(0, at, numel).copy_(piece);
  }
}

std::string hex_of(const at::Tensor& bytes) {
  std::string hex;
  for (const std::byte byte : bytes_of(bytes))
    hex += fmt::format("{:02x}", std::to_integer<int>(byte));
  return hex;
}

at::Tensor bytes_of_hex(const std::string& hex) {
  const at::Tensor bytes = at::empty({static_cast<int64_t>(hex.size() / 2)}, at::kByte);
  for (int64_t i = 0; i < bytes.numel(); ++i) {
    bytes[i] = std::stoi(hex.substr(static_cast<size_t>(2 * i), 2), nullptr, 16);
  }
  return bytes;
}

std::string generator_state(const c10::Device& device) {
  return hex_of(at::globalContext().defaultGenerator(device).get_state());
}

LossSum mean_of(const std::vector<RankProgress>& ranks, LossSum RankProgress::*sum) {
  LossSum mean = ranks.front().*sum;
  for (size_t i = 1; i < ranks.size(); ++i) mean.sum += (ranks[i].*sum).sum;
  mean.sum /= static_cast<double>(ranks.size());
  return mean;
}

CheckpointWriterOptions writer_options(const Job& job, int rank, const std::filesystem::path& run) {
  return {.store = CheckpointStore(run / kCheckpointsFolder, job.attempt.fence),
          .wanted = job.checkpointing,
          .rank = rank,
          .world_size = job.strategy.world_size,
          .deadline = deadline_of(job.config)};
}

}  // namespace

FileLayout layout_of(const Job& job) {
  const auto names = moments_of(optimizer_options(job.config));
  std::vector<std::vector<std::string>> moments(job.spec.parameters.size());
  for (const planner::Group& group : job.train.groups) {
    for (const planner::Bucket& bucket : group.buckets) {
      if (bucket.frozen) continue;
      for (const planner::BucketEntry& entry : bucket.entries) {
        moments[entry.parameter].assign(names.begin(), names.end());
      }
    }
  }
  return checkpoint_layout(job.spec, moments);
}

Staging::Staging(const planner::Schedule& schedule, RankState& state, int rank)
    : state_ranges_(state.ranges()) {
  for (size_t group = 0; group < schedule.groups.size(); ++group) {
    buckets_.emplace_back();
    for (const planner::Bucket& bucket : schedule.groups[group].buckets) {
      const auto index = static_cast<int>(buckets_.back().size());
      buckets_.back().push_back(
          share_of(schedule, bucket, state.bucket(static_cast<int>(group), index), rank));
    }
  }
  take_memory(state.device().is_cuda());
}

Staging::StagedBucket Staging::share_of(const planner::Schedule& schedule,
                                        const planner::Bucket& bucket, const BucketState& held,
                                        int rank) {
  const planner::ShardPart part = part_to_write(schedule, bucket, rank);
  StagedBucket share{.begin = part.begin, .from = {held.master.narrow(0, part.begin, part.numel)}};
  for (const at::Tensor& moment : held.moments) {
    share.from.push_back(moment.narrow(0, part.begin, part.numel));
  }
  return share;
}

void Staging::take_memory(bool is_pinned) {
  int64_t total_bytes = 0;
  for (const std::vector<StagedBucket>& group : buckets_) {
    for (const StagedBucket& bucket : group) {
      for (const at::Tensor& from : bucket.from) {
        total_bytes += planner::PinnedBlocks::rounded(static_cast<int64_t>(from.nbytes()));
      }
    }
  }
  PinnedMemory pinned(Category::checkpoint_staging, kStagingLabel, is_pinned ? total_bytes : 0);
  const profiler::Scope scope(Category::checkpoint_staging, kStagingLabel);
  for (std::vector<StagedBucket>& group : buckets_) {
    for (StagedBucket& bucket : group) {
      for (const at::Tensor& from : bucket.from) {
        bucket.copies.push_back(is_pinned ? pinned.take(from.numel(), at::kFloat)
                                          : at::empty({from.numel()}, at::kFloat));
      }
    }
  }
}

void Staging::take() {
  const at::NoGradGuard no_grad;
  for (std::vector<StagedBucket>& group : buckets_) {
    for (StagedBucket& bucket : group) {
      for (size_t i = 0; i < bucket.from.size(); ++i) bucket.copies[i].copy_(bucket.from[i]);
    }
  }
}

std::vector<FileRange> Staging::ranges(const FileLayout& layout) const {
  std::vector<FileRange> ranges;
  for (const StateRange& range : state_ranges_) {
    const StagedBucket& bucket = buckets_[range.group][range.bucket];
    const int64_t begin = std::max(range.shard_begin, bucket.begin);
    const int64_t end =
        std::min(range.shard_begin + range.numel, bucket.begin + bucket.copies.front().numel());
    if (begin >= end) continue;
    const std::vector<PlacedTensor>& placed = layout.parameters[range.parameter];
    const int64_t element = range.begin + begin - range.shard_begin;  // of the parameter
    for (size_t i = 0; i < std::min(placed.size(), bucket.copies.size()); ++i) {
      const at::Tensor piece = bucket.copies[i].narrow(0, begin - bucket.begin, end - begin);
      ranges.push_back(
          {placed[i].file, placed[i].offset_bytes + element * kFloatBytes, bytes_of(piece)});
    }
  }
  return ranges;
}

Checkpointer::Checkpointer(const Job& job, int rank, std::filesystem::path run, const Board& board,
                           RankState& state, const GradientScale& gradient_scale)
    : job_(job),
      rank_(rank),
      run_(std::move(run)),
      board_(board),
      state_(state),
      gradient_scale_(gradient_scale),
      layout_(layout_of(job)),
      options_(writer_options(job, rank, run_)),
      first_generator_(generator_state(state.device())) {}

bool Checkpointer::is_due(int64_t step, bool ends_epoch) const {
  return is_checkpoint_due(job_.checkpointing, step, ends_epoch);
}

std::string Checkpointer::drawn_generator() const {
  std::string now = generator_state(state_.device());
  return now == first_generator_ ? std::string() : now;
}

Patience Checkpointer::patience() const {
  return {.deadline = options_.deadline,
          .is_stopped = [this] { return board_.abort_note().is_raised(); }};
}

void Checkpointer::save(CheckpointState position, RankProgress progress) {
  const auto start = Clock::now();
  writing_.wait();
  if (!staging_) staging_.emplace(job_.train, state_, rank_);
  staging_->take();
  position.optimizer_steps = state_.step_count().item<double>();
  position.loss_scale = state_of(gradient_scale_);
  position.configuration = planner::run_identity(job_.config);
  progress.generator = drawn_generator();
  CheckpointShare share{.ranges = staging_->ranges(layout_), .progress = std::move(progress)};
  writing_.start([this, share = std::move(share),
                  position = std::move(position)](const std::atomic<bool>& is_stopped) {
    const auto begun = Clock::now();
    write_checkpoint(options_, layout_, share, position,
                     [&] { return is_stopped || board_.abort_note().is_raised(); });
    spdlog::info("checkpoint of step {}: written in {:.1f} ms", position.step, ms_since(begun));
  });
  if (!job_.checkpointing.asynchronous) writing_.wait();
  ++cost_.count;
  cost_.waited_ms += ms_since(start);
}

void Checkpointer::finish(int64_t step) {
  writing_.wait();
  if (!staging_) staging_.emplace(job_.train, state_, rank_);
  staging_->take();
  const FileLayout model = model_layout(job_.spec);
  write_model(options_, model, {.ranges = staging_->ranges(model), .progress = {}},
              run_ / kModelFolder, step, [&] { return board_.abort_note().is_raised(); });
}

void Checkpointer::restore_range(const StateRange& range, CheckpointReader& reader) {
  const std::vector<PlacedTensor>& placed = layout_.parameters[range.parameter];
  const BucketState& bucket = state_.bucket(range.group, range.bucket);
  for (size_t i = 0; i < placed.size(); ++i) {
    const at::Tensor& held = i == 0 ? bucket.master : bucket.moments[i - 1];
    fill(held.narrow(0, range.shard_begin, range.numel), reader, placed[i].name,
         range.begin * kFloatBytes);
  }
}

void Checkpointer::verify(CheckpointReader& reader) const {
  const int64_t step = reader.manifest().step;
  reader.verify({.rank = rank_,
                 .world_size = job_.strategy.world_size,
                 .folder = options_.store.being_read(step),
                 .patience = patience()});
  if (rank_ != 0) return;
  options_.store.fence().check();
  options_.store.prune(options_.wanted, step);
}

CheckpointState Checkpointer::restore() {
  const at::NoGradGuard no_grad;
  CheckpointReader reader(*job_.resume);
  for (const StateRange& range : state_.ranges()) restore_range(range, reader);
  if (job_.attempt.verifies) verify(reader);
  state_.renew_casts();
  shardlens::check(reader.state().has_value(), "a checkpoint's state is gone since it was checked");
  const CheckpointState& state = *reader.state();
  state_.step_count().fill_(state.optimizer_steps);
  if (state.loss_scale) runtime::restore(*state.loss_scale, gradient_scale_);
  const auto rank = static_cast<size_t>(rank_);
  if (rank < state.ranks.size() && !state.ranks[rank].generator.empty()) {
    at::Generator generator = at::globalContext().defaultGenerator(state_.device());
    generator.set_state(bytes_of_hex(state.ranks[rank].generator));
  }
  return state;
}

RankProgress Checkpointer::progress_of(const CheckpointState& state, int rank, int world_size) {
  if (static_cast<int>(state.ranks.size()) == world_size) return state.ranks[rank];
  return {.logged = mean_of(state.ranks, &RankProgress::logged),
          .logged_ms = state.ranks.front().logged_ms,
          .epoch = mean_of(state.ranks, &RankProgress::epoch),
          .generator = {}};
}

}  // namespace shardlens::runtime
