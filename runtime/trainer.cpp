#include "runtime/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <malloc.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>

#include "models/model.h"
#include "runtime/batches.h"
#include "runtime/progress.h"

namespace shardlens::runtime {

namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double percentile(std::vector<float> values, double share) {
  if (values.empty()) return 0;
  const auto at = static_cast<size_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

/// A step frees and takes the same large blocks again and again. glibc would give each back to the
/// system, whose zeroed pages cost 6 % of a CPU step (113.6 to 106.8 ms, two ranks on 2 cores).
void keep_freed_memory() {
  constexpr int kLargestMmapThreshold = 32 << 20;  // glibc's limit; larger ones are rare
  ::mallopt(M_MMAP_THRESHOLD, kLargestMmapThreshold);
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

/// Sum of batch losses, added on the device and read only when somebody asks.
class MeanLoss {
 public:
  void add(const at::Tensor& loss) {
    sum_ = sum_.defined() ? sum_.add_(loss) : loss.clone();
    ++batches_;
  }
  int64_t batches() const { return batches_; }
  double take() {
    const double mean = sum_.defined() ? sum_.item<double>() / static_cast<double>(batches_) : 0;
    *this = {};
    return mean;
  }

 private:
  at::Tensor sum_;
  int64_t batches_ = 0;
};

class Trainer {
 public:
  Trainer(const Job& job, const TrainerOptions& options)
      : job_(job),
        options_(options),
        train_data_(job.data.train),
        test_data_(job.data.test),
        state_(job.spec, job.train, job.train.shards > 1 ? options.rank : 0),
        executor_(job.spec, state_, options.channels, {.lr = job.config.lr}) {
    if (options.rank != 0) return;
    progress_ = std::make_unique<Progress>();
    metrics_.open(options.metrics, std::ios::trunc);
  }

  TrainResult run() {
    set_start_weights();
    for (int64_t epoch = 0; step_ < job_.steps; ++epoch) {
      train_epoch(epoch);
      evaluate();
      say(fmt::format("epoch {}: train loss {:.4f}, test accuracy {:.2f} %", epoch + 1,
                      result_.train_loss, 100 * result_.test_accuracy));
    }
    result_.median_step_ms = percentile(step_ms_, 0.5);
    result_.p95_step_ms = percentile(step_ms_, 0.95);
    return result_;
  }

 private:
  void set_start_weights() {
    const auto take = [this](int parameter, const at::Tensor& value) {
      state_.set_parameter(parameter, value);
    };
    if (job_.config.init.empty()) {
      models::draw_parameters(job_.spec, static_cast<uint64_t>(job_.config.seed), take);
    } else {
      models::load_parameters(job_.spec, job_.config.init, take);
    }
  }

  void train_epoch(int64_t epoch) {
    show(Phase::training);
    const at::Tensor order =
        sample_order(job_.data.train.count, static_cast<uint64_t>(job_.config.seed), epoch,
                     options_.rank, job_.strategy.world_size);
    const int64_t batch = job_.config.batch;
    for (int64_t first = 0; first < order.numel() && step_ < job_.steps; first += batch) {
      const int64_t count = std::min(batch, order.numel() - first);
      train_step(epoch, order.narrow(0, first, count));
    }
    const bool whole = step_ == (epoch + 1) * job_.steps_per_epoch;
    result_.epochs = whole ? epoch + 1 : epoch;
    result_.steps = step_;
    result_.train_loss = mean_over_ranks(epoch_loss_.take());
  }

  void train_step(int64_t epoch, const at::Tensor& indices) {
    const auto start = Clock::now();
    executor_.run(job_.train, step_, [&] { return train_data_.at(indices); });
    logged_loss_.add(executor_.loss());
    epoch_loss_.add(executor_.loss());
    ++step_;
    logged_ms_ += ms_since(start);
    if (logged_loss_.batches() == job_.config.log_every || step_ == job_.steps) log(epoch);
    if (progress_ && last_images_per_s_ > 0) progress_->update(progress_state(epoch));
    step_ms_.push_back(static_cast<float>(ms_since(start)));
  }

  void log(int64_t epoch) {
    const double step_ms = logged_ms_ / static_cast<double>(logged_loss_.batches());
    logged_ms_ = 0;
    last_loss_ = mean_over_ranks(logged_loss_.take());
    last_images_per_s_ =
        1e3 / step_ms * static_cast<double>(job_.config.batch * job_.strategy.world_size);
    if (!metrics_.is_open()) return;
    const nlohmann::ordered_json line = {{"step", step_},
                                         {"epoch", epoch + 1},
                                         {"loss", last_loss_},
                                         {"step_ms", step_ms},
                                         {"images_per_s", last_images_per_s_}};
    metrics_ << line.dump() << std::endl;
    if (!metrics_) throw std::runtime_error(options_.metrics.string() + ": cannot be written");
  }

  /// Correct answers over the whole test set, which is split over the ranks.
  void evaluate() {
    show(Phase::evaluating);
    const int64_t count = job_.data.test.count;
    const int world_size = job_.strategy.world_size;
    const at::Tensor order = in_order(count, options_.rank, world_size);
    const int64_t batch = job_.config.batch;
    int64_t correct = 0;
    for (int64_t first = 0; first < order.numel(); first += batch) {
      const int64_t samples = std::min(batch, order.numel() - first);
      executor_.run(job_.evaluate, step_,
                    [&] { return test_data_.at(order.narrow(0, first, samples)); });
      // The padded list wraps at its end: a sample met again there is not counted again.
      const int64_t fresh = (count - options_.rank + world_size - 1) / world_size - first;
      correct += correct_answers(std::clamp<int64_t>(fresh, 0, samples));
    }
    double total = static_cast<double>(correct);
    sum({.step = step_, .kind = "SUM", .group = "test accuracy"}, total);
    result_.test_accuracy = total / static_cast<double>(count);
  }

  int64_t correct_answers(int64_t samples) const {
    const at::Tensor answers = executor_.logits().argmax(1).eq(executor_.labels());
    return answers.narrow(0, 0, samples).sum().item<int64_t>();
  }

  double mean_over_ranks(double value) {
    sum({.step = step_, .kind = "SUM", .group = "loss"}, value);
    return value / job_.strategy.world_size;
  }

  void sum(const Operation& operation, double& value) {
    options_.channels.reduce->sum(operation, {&value, 1});
  }

  void show(Phase phase) {
    executor_.observe([board = options_.board, rank = options_.rank, phase,
                       &step = step_](int action) { board.enter(rank, phase, step, action); });
  }

  ProgressState progress_state(int64_t epoch) const {
    return {.step = step_,
            .steps = job_.steps,
            .epoch = epoch + 1,
            .epochs = job_.config.epochs,
            .loss = last_loss_,
            .images_per_s = last_images_per_s_};
  }

  void say(const std::string& line) {
    spdlog::info(line);
    if (progress_) progress_->say(line);
  }

  const Job& job_;
  TrainerOptions options_;
  Batches train_data_;
  Batches test_data_;
  RankState state_;
  Executor executor_;
  std::unique_ptr<Progress> progress_;
  std::ofstream metrics_;
  MeanLoss logged_loss_;
  MeanLoss epoch_loss_;
  std::vector<float> step_ms_;
  double logged_ms_ = 0;  // of the steps since the last line of metrics
  double last_loss_ = 0;
  double last_images_per_s_ = 0;  // 0: nothing measured yet
  int64_t step_ = 0;
  TrainResult result_;
};

}  // namespace

TrainResult train_rank(const Job& job, const TrainerOptions& options) {
  keep_freed_memory();
  at::set_num_threads(static_cast<int>(job.config.threads));
  return Trainer(job, options).run();
}

std::string to_json(const TrainResult& result) {
  const nlohmann::ordered_json json = {
      {"schema", "shardlens.run/1"},
      {"status", "ok"},
      {"steps", result.steps},
      {"epochs", result.epochs},
      {"train_loss", result.train_loss},
      {"test_accuracy", result.test_accuracy},
      {"step_ms", {{"median", result.median_step_ms}, {"p95", result.p95_step_ms}}},
      {"restarts", 0}};
  return json.dump(2) + "\n";
}

std::string failure_json(const std::string& reason, int64_t steps) {
  const nlohmann::ordered_json json = {{"schema", "shardlens.run/1"},
                                       {"status", "failed"},
                                       {"reason", reason},
                                       {"steps", steps},
                                       {"restarts", 0}};
  return json.dump(2) + "\n";
}

}  // namespace shardlens::runtime
