#include "runtime/job.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "models/model.h"
#include "runtime/batches.h"

namespace shardlens::runtime {

namespace {

void check_fit(const Job& job) {
  const ImageSet& images = job.data.train;
  const models::VitSizes& model = job.spec.vit;
  if (images.height != model.image_px || images.width != model.image_px || model.channels != 1) {
    throw std::invalid_argument(
        fmt::format("--model {}: takes images of {} x {} px with {} channels, but --data {} has {} "
                    "x {} px with "
                    "1; give a model file with the data's sizes",
                    job.config.model, model.image_px, model.image_px, model.channels,
                    job.config.data, images.height, images.width));
  }
  if (job.data.classes > model.classes) {
    throw std::invalid_argument(fmt::format(
        "--model {}: tells {} classes apart, but --data {} has {}; give a model file with more",
        job.config.model, model.classes, job.config.data, job.data.classes));
  }
}

void check_batch(const Job& job) {
  const int64_t samples = samples_per_rank(job.data.train.count, job.strategy.world_size);
  if (job.config.batch <= samples) return;
  throw std::invalid_argument(fmt::format(
      "--batch {}: each of {} ranks has {} samples in --data {}; give --batch {} or less",
      job.config.batch, job.strategy.world_size, samples, job.config.data, samples));
}

void count_steps(Job& job) {
  const int64_t samples = samples_per_rank(job.data.train.count, job.strategy.world_size);
  job.steps_per_epoch = (samples + job.config.batch - 1) / job.config.batch;
  job.steps = job.steps_per_epoch * job.config.epochs;
  if (job.config.steps > 0) job.steps = std::min(job.steps, job.config.steps);
}

}  // namespace

Job prepare_job(const planner::Config& config) {
  Job job;
  job.config = config;
  job.strategy = planner::strategy_of(config);
  job.spec = models::find_spec(config.model);
  if (!config.init.empty()) models::check_weights(job.spec, config.init);
  job.data = load_dataset(config.data);
  check_fit(job);
  check_batch(job);
  count_steps(job);
  job.train = build_schedule(job.spec, job.strategy, planner::Pass::train);
  job.evaluate = build_schedule(job.spec, job.strategy, planner::Pass::evaluate);
  return job;
}

std::string describe(const Job& job, const RankStatus& status) {
  if (status.phase != Phase::training && status.phase != Phase::evaluating) {
    return std::string(to_string(status.phase));
  }
  const planner::Schedule& schedule = status.phase == Phase::training ? job.train : job.evaluate;
  // Step and action are not read as one, so the id may be the other schedule's.
  if (status.action < 0 || status.action >= static_cast<int>(schedule.actions.size())) {
    return fmt::format("{}, step {}", to_string(status.phase), status.step);
  }
  const planner::Action& action = schedule.actions[status.action];
  std::string text = fmt::format("{}, step {}, action {} {}", to_string(status.phase), status.step,
                                 status.action, planner::to_string(action.kind));
  if (action.unit >= 0) return text + " of " + schedule.units[action.unit];
  if (action.group >= 0) text += " of " + schedule.groups[action.group].name;
  if (action.bucket >= 0) text += fmt::format(" bucket {}", action.bucket);
  return text;
}

}  // namespace shardlens::runtime
