#include "runtime/train/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "base/process/host_limits.h"
#include "base/units.h"
#include "models/model.h"
#include "planner/config/optimizer_options.h"
#include "planner/config/training_data.h"
#include "profiler/null_device/null_device.h"
#include "runtime/checkpoint/local_recordings.h"
#include "runtime/checkpoint/verification.h"
#include "runtime/execute/device.h"
#include "runtime/execute/executor.h"

namespace shardlens::runtime {

namespace {

constexpr const char* kOwnData = "own";

/// Checks the loaded data, and keeps what the planner would find out about the data.
void take_data(Job& job, const planner::TrainingData& data) {
  check_data(data, job.spec, job.config);
  job.found_data = data;
}

void load_idx(Job& job) {
  job.data = models::load_dataset(job.config.data);
  const models::ImageSet& train = job.data.train;
  take_data(job, {.kind = DataKind::idx,
                  .train_samples = train.count,
                  .test_samples = job.data.test.count,
                  .height = train.height,
                  .width = train.width,
                  .classes = job.data.classes});
}

void list_images(Job& job) {
  job.folder = models::list_image_folder(job.config.data);
  take_data(job, planner::data_of(job.folder));
}

/// Takes a program's data: its samples, or one random batch.
void take_own_data(Job& job) {
  if (job.own->test.samples > 0 && job.own->model.loss) {
    throw std::invalid_argument(fmt::format(
        "model {}: test samples count how often the largest output is the target's, but the model "
        "has its own loss; leave the samples out, or use the spec's loss",
        job.spec.name));
  }
  take_data(job, {.kind = DataKind::own,
                  .train_samples = job.own->train.samples,
                  .test_samples = job.own->test.samples});
}

/// Returns the word for --data. A program's own model uses its own samples, if it has any.
std::string own_data_of(const Job& job) {
  const std::string& asked = job.config.data;
  const char* const own = job.own->train.samples > 0 ? kOwnData : planner::kSyntheticData;
  if (asked == "auto") return own;
  if (asked == own || asked == planner::kSyntheticData) return asked;
  throw std::invalid_argument(
      fmt::format("--data {}: the program trains its own model {} on its own samples; leave it "
                  "out, or give --data synthetic for one random batch",
                  asked, job.spec.name));
}

/// Throws if synthetic data cannot be drawn: random targets are classes, so the model needs some.
void check_synthetic(const Job& job) {
  const bool has_targets = job.spec.loss == models::LossKind::mean_cross_entropy;
  if (job.config.data != planner::kSyntheticData || !has_targets || job.spec.sample.classes > 0)
    return;
  throw std::invalid_argument(
      fmt::format("--data synthetic: the model {} has no classes to draw targets from; give it "
                  "samples of its own",
                  job.spec.name));
}

void load_data(Job& job) {
  if (job.own) {
    job.config.data = own_data_of(job);
    check_synthetic(job);
  }
  if (job.config.data == kOwnData && job.own) return take_own_data(job);
  if (job.config.data == "auto") job.config.data = planner::data_for(job.spec);
  if (job.config.data == planner::kSyntheticData) {
    job.found_data = {.train_samples = synthetic_samples(job.config)};
    return;
  }
  expect_image_model(job.spec, job.config);
  models::is_image_folder(job.config.data) ? list_images(job) : load_idx(job);
}

/// Returns the program's own spec if it has one; else the spec that --model names.
models::ModelSpec spec_of(Job& job) {
  if (!job.own) return models::find_spec(job.config.model, job.config.seq);
  const models::ModelSpec& spec = job.own->model.spec;
  if (job.config.model != planner::Config{}.model && job.config.model != spec.name) {
    throw std::invalid_argument(
        fmt::format("--model {}: this program trains its own model {}; leave it out",
                    job.config.model, spec.name));
  }
  if (job.config.seq != 0) {
    throw std::invalid_argument(fmt::format(
        "--seq {}: the model {} has its own shape; leave it out", job.config.seq, spec.name));
  }
  if (spec.units.size() != job.own->model.units.size()) {
    throw std::invalid_argument(
        fmt::format("model {}: {} units, but {} functions; give one per unit", spec.name,
                    spec.units.size(), job.own->model.units.size()));
  }
  job.config.model = spec.name;
  return spec;
}

void assign_gpus(Job& job) {
  if (job.device.kind != DeviceKind::cuda) return;
  job.gpus = count_gpus();
  if (job.gpus == 0) {
    throw std::invalid_argument(
        "--device cuda: there is no GPU that CUDA can use; see nvidia-smi, or give --device cpu or "
        "null:h200");
  }
  // NCCL refuses two ranks on one GPU; staged through the host this works, but slowly. Ranks of
  // another launcher may each see only their own GPU: they compare GPUs when they meet.
  if (!job.place.is_alone()) return;
  if (job.config.workers > job.gpus && !job.strategy.staged) {
    throw std::invalid_argument(fmt::format(
        "--workers {}: there are {} GPUs, and NCCL allows one rank per GPU; give --workers {} or "
        "less, or --communicator gloo to try more",
        job.config.workers, job.gpus, job.gpus));
  }
}

void choose_ranks(Job& job) {
  if (job.config.solo_rank >= 0) {
    job.ranks = {static_cast<int>(job.config.solo_rank)};
  } else {
    job.ranks.resize(static_cast<size_t>(job.strategy.world_size));
    std::iota(job.ranks.begin(), job.ranks.end(), 0);
  }
  if (job.device.kind == DeviceKind::null) {
    job.notice = profiler::kNullDeviceNotice;
  } else if (job.config.solo_rank >= 0 && job.strategy.world_size > 1) {
    job.notice = "solo rank: memory is real, values are not";
  }
}

/// Reads --init in full. If another launcher has started several ranks on a host, one does this for
/// all of them.
void check_init(Job& job) {
  const std::string& init = job.config.init;
  try {
    if (job.place.local_rank == 0) job.init_unverified = why_unverified(init);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("--init {}: {}", init, error.what()));
  }
  models::check_weights(job.spec, init);
}

void count_steps(Job& job) {
  job.steps_per_epoch = steps_in_epoch(job.found_data.train_samples, job.config);
  job.steps = steps_in_run(job.steps_per_epoch, job.config);
}

/// Throws if a recording would stay empty or could not be written.
void check_recording(const Job& job) {
  LocalRecordings::check(job.config.profile_dir);
  if (!job.recording.steps || job.recording.steps->first <= job.steps) return;
  throw std::invalid_argument(
      fmt::format("--profile {}: the run has {} steps; give a range that begins with one of them",
                  job.config.profile, job.steps));
}

void check_host_memory(const Job& job) {
  const auto moments = static_cast<int>(moments_of(optimizer_options(job.config)).size());
  const int64_t rank_bytes = job.train.host_bytes(moments);
  const int64_t needed_bytes = rank_bytes * job.ranks_here();
  const std::optional<int64_t> left_bytes = available_host_bytes();
  if (rank_bytes == 0 || !left_bytes || needed_bytes <= *left_bytes) return;
  throw std::invalid_argument(
      fmt::format("--offload {}: {} rank{} would keep {} in this host's memory, which has {} left; "
                  "give --offload "
                  "{}, or more ranks on more hosts",
                  to_string(job.config.offload), job.ranks_here(), job.ranks_here() == 1 ? "" : "s",
                  bytes_text(needed_bytes), bytes_text(*left_bytes),
                  job.strategy.offload == planner::Offload::params ? "none" : "params or none"));
}

}  // namespace

std::chrono::milliseconds deadline_of(const planner::Config& config) {
  return std::chrono::milliseconds(static_cast<int64_t>(config.timeout_s * 1e3));
}

void choose_device(planner::Config& config) {
  using enum DeviceKind;
  if (!config.device.kind) config.device.kind = count_gpus() > 0 ? cuda : cpu;
}

Job prepare_job(const planner::Config& config, const std::optional<OwnTraining>& own,
                const Membership& place) {
  Job job;
  job.config = config;
  job.own = own;
  job.place = place;
  job.device = planner::device_of(config);
  job.strategy = planner::strategy_of(config);
  job.recording = planner::recording_of(config);
  job.spec = spec_of(job);
  if (!config.init.empty()) check_init(job);
  assign_gpus(job);
  choose_ranks(job);
  load_data(job);
  job.checkpointing = planner::checkpointing_of(job.config);
  count_steps(job);
  check_recording(job);
  job.train = build_schedule(job.spec, job.strategy, planner::Pass::train);
  job.evaluate = build_schedule(job.spec, job.strategy, planner::Pass::evaluate);
  check_host_memory(job);
  return job;
}

std::string describe(const Job& job, const RankStatus& status) {
  if (status.phase != RankPhase::training && status.phase != RankPhase::evaluating) {
    return std::string(to_string(status.phase));
  }
  const planner::Schedule& schedule =
      status.phase == RankPhase::training ? job.train : job.evaluate;
  // Step and action are not read atomically, so the id may belong to the other schedule.
  if (status.action < 0 || status.action >= schedule.size()) {
    return fmt::format("{}, step {}", to_string(status.phase), status.step);
  }
  const planner::Action& action = schedule.action(status.action);
  std::string text = fmt::format("{}, step {}, action {} {}", to_string(status.phase), status.step,
                                 status.action, to_string(action.kind));
  if (action.unit >= 0) return text + " of " + schedule.units[action.unit];
  if (action.group >= 0) text += " of " + schedule.groups[action.group].name;
  if (action.bucket >= 0) text += fmt::format(" bucket {}", action.bucket);
  return text;
}

}  // namespace shardlens::runtime
