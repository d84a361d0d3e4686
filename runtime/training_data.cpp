#include "runtime/training_data.h"

#include "runtime/dataset.h"
#include "runtime/image_folder.h"

namespace shardlens::runtime {

std::string data_for(const models::ModelSpec& spec) {
  const bool takes_fashion = spec.sample.input == models::InputKind::images &&
                             spec.vit.image_px == 28 && spec.vit.channels == 1;
  return takes_fashion ? "fashion-mnist" : kSyntheticData;
}

int64_t steps_in_epoch(int64_t samples, const planner::Config& config) {
  const int64_t ranks = planner::world_size_of(config);
  const int64_t samples_a_rank = (samples + ranks - 1) / ranks;
  const int64_t batch = config.batch * config.accumulate;
  return (samples_a_rank + batch - 1) / batch;
}

int64_t synthetic_samples(const planner::Config& config) {
  constexpr int64_t kStepsAnEpoch = 100;
  return kStepsAnEpoch * config.batch * config.accumulate * planner::world_size_of(config);
}

int64_t count_training_samples(const planner::Config& config) {
  if (config.data == kSyntheticData) return synthetic_samples(config);
  if (is_image_folder(config.data)) {
    return static_cast<int64_t>(list_image_folder(config.data).train.size());
  }
  return load_dataset(config.data).train.count;
}

}  // namespace shardlens::runtime
