#include "runtime/train/trainer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <malloc.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/check.h"
#include "base/durable_files.h"
#include "base/units.h"
#include "models/model.h"
#include "planner/step/samples.h"
#include "profiler/recorder/recorder.h"
#include "runtime/execute/null_inspection.h"
#include "runtime/train/batches.h"
#include "runtime/train/progress.h"

namespace shardlens::runtime {

namespace {

using Clock = std::chrono::steady_clock;

double percentile(std::vector<float> values, double share) {
  if (values.empty()) return 0;
  const auto at = static_cast<size_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(at), values.end());
  return values[at];
}

/// Makes glibc keep freed memory. Every step frees and takes the same large blocks. glibc would
/// return each to the system, whose zeroed pages cost 6 % of a CPU step (113.6 to 106.8 ms, two
/// ranks on 2 cores).
void keep_freed_memory() {
  constexpr int kLargestMmapThreshold = 32 << 20;  // glibc's limit; larger ones are rare
  ::mallopt(M_MMAP_THRESHOLD, kLargestMmapThreshold);
  ::mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
}

nlohmann::ordered_json peak_json(const MemoryPeak& peak) {
  return {{"allocated_bytes", peak.allocated_bytes}, {"reserved_bytes", peak.reserved_bytes}};
}

profiler::Phase recorded_phase(RankPhase phase) {
  if (phase == RankPhase::saving) return profiler::Phase::checkpointing;
  return phase == RankPhase::training ? profiler::Phase::training : profiler::Phase::evaluating;
}

std::string peak_text(const MemoryPeak& peak) {
  return fmt::format("{} allocated, {} reserved", bytes_text(peak.allocated_bytes),
                     bytes_text(peak.reserved_bytes));
}

/// Sums batch losses; they are read only on demand.
struct MeanLoss : planner::RunningLoss<at::Tensor> {
  /// Returns what a checkpoint keeps; copies from the device.
  LossSum state() const { return {sum.defined() ? sum.item<double>() : 0, steps}; }
  /// Restores the sum. Losses on `device` will be added to it.
  void restore(const LossSum& state, const c10::Device& device) {
    steps = state.batches;
    if (steps > 0) sum = at::full({}, state.sum, at::dtype(at::kFloat).device(device));
  }
  double take() {
    const double mean = sum.defined() ? sum.item<double>() / static_cast<double>(steps) : 0;
    *this = {};
    return mean;
  }
};

enum class Split { train, test };

/// Makes the source of samples, however they are kept.
std::unique_ptr<BatchSource> make_source(const Job& job, Split split, const c10::Device& device) {
  const bool trains = split == Split::train;
  switch (job.found_data.kind) {
    case DataKind::idx:
      return std::make_unique<Batches>(trains ? job.data.train : job.data.test, device);
    case DataKind::image_folder:
      return std::make_unique<FileBatches>(trains ? job.folder.train : job.folder.test,
                                           job.spec.sample.shape[1], job.spec.sample.shape[0],
                                           device);
    case DataKind::own:
      return std::make_unique<OwnBatches>(trains ? job.own->train : job.own->test, device);
    case DataKind::synthetic:
      break;
  }
  unreachable("synthetic data have no source");
}

/// Gives a rank's training data, batch by batch.
class TrainData {
 public:
  TrainData(const Job& job, int rank, const c10::Device& device) : job_(job), rank_(rank) {
    const profiler::Scope scope(profiler::Category::input, "training data");
    if (job.found_data.kind == DataKind::synthetic) {
      batch_ = synthetic_batch(job.spec, job.config.batch, seed(), device);
    } else {
      source_ = make_source(job, Split::train, device);
    }
  }

  void begin_epoch(int64_t epoch) {
    const profiler::Scope scope(profiler::Category::input, "sample order");
    order_ =
        sample_order(job_.found_data.train_samples, seed(), epoch, rank_, job_.strategy.world_size);
    if (source_) order_ = order_.to(source_->index_device());
  }

  int64_t samples() const { return order_.numel(); }

  models::Batch at(int64_t first, int64_t count) const {
    return source_ ? source_->at(order_.narrow(0, first, count)) : batch_;
  }

 private:
  uint64_t seed() const { return static_cast<uint64_t>(job_.config.seed); }

  const Job& job_;
  int rank_;
  std::unique_ptr<BatchSource> source_;  // null: the one batch
  models::Batch batch_;
  at::Tensor order_;  // [samples of one epoch], int64
};

/// Returns the options that the configuration asks for, with a program's own functions.
ExecutorOptions options_of(const Job& job) {
  ExecutorOptions options = executor_options(job.config);
  if (!job.own) return options;
  options.units = job.own->model.units;
  options.loss = job.own->model.loss;
  return options;
}

/// Names the unit of a run's speed.
struct SpeedUnit {
  std::string name;
  int64_t in_a_step = 0;  // of all ranks
};

SpeedUnit speed_unit(const Job& job) {
  const int64_t samples = job.config.batch * job.config.accumulate * job.strategy.world_size;
  switch (job.spec.sample.input) {
    case models::InputKind::images:
      return {"images", samples};
    case models::InputKind::features:
      return {"samples", samples};
    case models::InputKind::tokens:
      return {"tokens", samples * job.spec.sample.shape.front()};
  }
  unreachable("input kind out of range");
}

/// Separates the device's peaks in steps from those of the whole run.
class PeakWatch {
 public:
  explicit PeakWatch(const c10::Device& device) : device_(device) {}

  /// Begins to count steps. The peaks so far belong to other work.
  void begin_steps() {
    raise(whole_);
    reset_memory_peak(device_);
  }
  void end_steps() {
    raise(steps_);
    begin_steps();
  }

  const std::optional<MemoryPeak>& steps() const { return steps_; }
  std::optional<MemoryPeak> whole() {
    raise(whole_);
    return whole_;
  }

 private:
  void raise(std::optional<MemoryPeak>& peak) const {
    const std::optional<MemoryPeak> now = memory_peak(device_);
    if (!now) return;
    if (!peak) peak.emplace();
    peak->allocated_bytes = std::max(peak->allocated_bytes, now->allocated_bytes);
    peak->reserved_bytes = std::max(peak->reserved_bytes, now->reserved_bytes);
  }

  c10::Device device_;
  std::optional<MemoryPeak> whole_;
  std::optional<MemoryPeak> steps_;
};

class Trainer {
 public:
  Trainer(const Job& job, const TrainerOptions& options)
      : job_(job),
        options_(options),
        peaks_(options.device),
        state_(job.spec, job.train, options.rank, options.device, optimizer_options(job.config)),
        executor_(job.spec, state_, *options.streams, options.channels, options_of(job)),
        train_data_(job, options.rank, options.device) {
    if (profiler::NullChecks* const checks = profiler::find_null_checks()) {
      inspection_.emplace(*checks, state_, *options.streams,
                          job.strategy.communicator == planner::CommunicatorKind::nccl);
      executor_.inspect(*inspection_);
    }
    if (job.found_data.test_samples > 0) {
      const profiler::Scope scope(profiler::Category::input, "test data");
      test_data_ = make_source(job, Split::test, options.device);
    }
    if (job.checkpointing.wanted) {
      checkpoints_.emplace(job, options.rank, options.run, options.board, state_,
                           executor_.gradient_scale());
    }
    if (!job.writes_results(options.rank)) return;
    progress_ = std::make_unique<Progress>(job_.place.is_alone());
    metrics_.open(options.metrics, std::ios::app);
    if (!metrics_) fail_to_write(options.metrics);
  }

  TrainResult run() {
    job_.resume ? resume() : set_start_weights();
    look_for_stop();
    for (int64_t epoch = step_ / job_.steps_per_epoch; step_ < job_.steps && !stops_; ++epoch) {
      train_epoch(epoch);
      if (!stops_) end_epoch(epoch);
    }
    stops_ ? end_early() : finish_checkpoints();
    result_.median_step_ms = percentile(step_ms_, 0.5);
    result_.p95_step_ms = percentile(step_ms_, 0.95);
    result_.peak = peaks_.whole();
    result_.step_peak = peaks_.steps();
    result_.allocation_retries = allocation_retries(options_.device);
    result_.notice = job_.notice;
    result_.init = job_.config.init;
    result_.init_is_verified = !job_.init_unverified;
    result_.restarts = job_.attempt.restarts;
    if (result_.peak) say("peak memory: " + peak_text(*result_.peak));
    if (result_.step_peak) say("during steps: " + peak_text(*result_.step_peak));
    return result_;
  }

 private:
  /// Throws if a checking null device has found a fault, which is a bug of ours.
  void check_passes() {
    if (!inspection_) return;
    const std::vector<std::string> faults = inspection_->take_faults();
    check(faults.empty(), [&] { return fmt::format("null device: {}", fmt::join(faults, "\n")); });
  }

  std::string epoch_line(int64_t epoch) const {
    if (!job_.notice.empty()) return fmt::format("epoch {}: {}", epoch + 1, job_.notice);
    std::string line = fmt::format("epoch {}: train loss {:.4f}", epoch + 1, result_.train_loss);
    if (result_.test_accuracy) {
      line += fmt::format(", test accuracy {:.2f} %", 100 * *result_.test_accuracy);
    }
    return line;
  }

  void set_start_weights() {
    const auto take = [this](int parameter, const at::Tensor& value) {
      state_.set_parameter(parameter, value);
    };
    if (job_.device.kind == DeviceKind::null) return set_no_weights(take);
    const auto seed = static_cast<uint64_t>(job_.config.seed);
    if (!job_.config.init.empty()) {
      models::load_parameters(job_.spec, job_.config.init, take);
    } else if (job_.own) {
      models::draw_parameters(job_.own->model, seed, take);
    } else {
      models::draw_parameters(job_.spec, seed, take);
    }
  }

  /// Takes weights without drawing any, because the null device keeps no values: only the copies
  /// are made.
  void set_no_weights(const models::ParameterReceiver& take) const {
    for (size_t i = 0; i < job_.spec.parameters.size(); ++i) {
      take(static_cast<int>(i), at::empty(job_.spec.parameters[i].shape));
    }
  }

  void resume() {
    const CheckpointState state = checkpoints_->restore();
    step_ = first_step_ = result_.steps = state.step;
    result_.epochs = state.epoch;
    result_.train_loss = state.train_loss.value_or(0);
    result_.test_accuracy = state.test_accuracy;
    const RankProgress progress =
        Checkpointer::progress_of(state, options_.rank, job_.strategy.world_size);
    logged_loss_.restore(progress.logged, options_.device);
    logged_ms_ = progress.logged_ms;
    epoch_loss_.restore(progress.epoch, options_.device);
  }

  void end_epoch(int64_t epoch) {
    if (test_data_) evaluate();
    check_passes();
    say(epoch_line(epoch));
    look_for_stop();
    if (ends_epoch()) save_if_due();
  }

  /// Finds out if the launcher wants the run to end here. Runs that cannot save are not asked.
  void look_for_stop() {
    const bool is_asked = options_.must_stop ? options_.must_stop(step_)
                                             : options_.board.must_stop(options_.rank, step_);
    stops_ = is_asked && step_ < job_.steps;
    check(!stops_ || checkpoints_.has_value(), "a run that saves nothing was asked to stop");
  }

  /// Ends before the last step. A checkpoint to resume from is saved; the model is not written.
  void end_early() {
    show(RankPhase::saving);
    checkpoints_->wait();
    result_.checkpoints = checkpoints_->cost();
    result_.steps = step_;
    result_.is_preempted = true;
  }

  bool ends_epoch() const { return step_ % job_.steps_per_epoch == 0; }

  void save_if_due() {
    if (!checkpoints_) return;
    const bool is_wanted = stops_ && step_ > first_step_;
    if (!is_wanted && !checkpoints_->is_due(step_, ends_epoch())) return;
    show(RankPhase::saving);
    CheckpointState position{.step = step_,
                             .epoch = step_ / job_.steps_per_epoch,
                             .epoch_samples = step_ % job_.steps_per_epoch * samples_a_step()};
    if (ends_epoch()) {
      position.train_loss = result_.train_loss;
      position.test_accuracy = result_.test_accuracy;
    }
    checkpoints_->save(
        position,
        {.logged = logged_loss_.state(), .logged_ms = logged_ms_, .epoch = epoch_loss_.state()});
    show(RankPhase::training);
  }

  void finish_checkpoints() {
    if (!checkpoints_) return;
    show(RankPhase::saving);
    checkpoints_->finish(step_);
    result_.checkpoints = checkpoints_->cost();
  }

  /// Returns how many samples all ranks take in a step.
  int64_t samples_a_step() const {
    return job_.config.batch * job_.config.accumulate * job_.strategy.world_size;
  }

  void train_epoch(int64_t epoch) {
    show(RankPhase::training);
    train_data_.begin_epoch(epoch);
    const int64_t samples = train_data_.samples();
    const int64_t batch = job_.config.batch * job_.config.accumulate;
    peaks_.begin_steps();
    for (int64_t first = step_ % job_.steps_per_epoch * batch;
         first < samples && step_ < job_.steps; first += batch) {
      if (step_ == first_step_ + planner::kFirstSteps) peaks_.begin_steps();
      train_step(epoch, first);
      if (checkpoints_) checkpoints_->check();
      if (ends_epoch()) continue;
      look_for_stop();
      save_if_due();
      if (stops_) return;
    }
    if (step_ > first_step_ + planner::kFirstSteps) peaks_.end_steps();
    const bool whole = step_ == (epoch + 1) * job_.steps_per_epoch;
    result_.epochs = whole ? epoch + 1 : epoch;
    result_.steps = step_;
    result_.train_loss = mean_over_ranks(epoch_loss_.take());
  }

  /// Trains one step. An epoch's last microbatches may reuse samples from its beginning.
  void train_step(int64_t epoch, int64_t first) {
    const auto start = Clock::now();
    if (recorder_ != nullptr) recorder_->step(step_);
    const int64_t samples = train_data_.samples();
    executor_.run(job_.train, step_, [&] {
      const int64_t begin = std::exchange(first, first + job_.config.batch) % samples;
      return train_data_.at(begin, std::min(job_.config.batch, samples - begin));
    });
    logged_loss_.add(executor_.loss());
    epoch_loss_.add(executor_.loss());
    ++step_;
    logged_ms_ += ms_since(start);
    if (logged_loss_.steps == job_.config.log_every || step_ == job_.steps) log(epoch);
    if (progress_ && last_per_s_ > 0) progress_->update(progress_state(epoch));
    if (recorder_ != nullptr) sample_memory();
    step_ms_.push_back(static_cast<float>(ms_since(start)));
  }

  void sample_memory() const {
    recorder_->sample_host();
    if (options_.device.is_cuda()) recorder_->sample_device();
  }

  void log(int64_t epoch) {
    const double step_ms = logged_ms_ / static_cast<double>(logged_loss_.steps);
    logged_ms_ = 0;
    last_loss_ = mean_over_ranks(logged_loss_.take());
    last_per_s_ = 1e3 / step_ms * static_cast<double>(unit_.in_a_step);
    if (recorder_ != nullptr) recorder_->loss(last_loss_);
    if (!metrics_.is_open()) return;
    nlohmann::ordered_json line = {{"step", step_},
                                   {"epoch", epoch + 1},
                                   {"loss", last_loss_},
                                   {"step_ms", step_ms},
                                   {unit_.name + "_per_s", last_per_s_}};
    const GradientScale& scale = executor_.gradient_scale();
    if (scale.norm().defined()) line["gradient_norm"] = scale.norm().item<double>();
    if (scale.scale().defined()) line["loss_scale"] = scale.scale().item<double>();
    if (!job_.notice.empty()) line["notice"] = job_.notice;
    metrics_ << line.dump() << std::endl;
    if (!metrics_) fail_to_write(options_.metrics);
  }

  /// Counts correct answers over the whole test set, which is split over the ranks.
  void evaluate() {
    show(RankPhase::evaluating);
    const int64_t count = job_.found_data.test_samples;
    const int world_size = job_.strategy.world_size;
    const at::Tensor order =
        sequential_split(count, options_.rank, world_size).to(test_data_->index_device());
    const int64_t batch = job_.config.batch;
    int64_t correct = 0;
    for (int64_t first = 0; first < order.numel(); first += batch) {
      const int64_t samples = std::min(batch, order.numel() - first);
      executor_.run(job_.evaluate, step_,
                    [&] { return test_data_->at(order.narrow(0, first, samples)); });
      // The padded list wraps at its end: a sample that is repeated there is not counted again.
      const int64_t fresh = (count - options_.rank + world_size - 1) / world_size - first;
      correct += planner::count_correct(
          executor_.logits(), executor_.targets(), std::clamp<int64_t>(fresh, 0, samples),
          [](const at::Tensor& number) { return number.item<int64_t>(); });
    }
    double total = static_cast<double>(correct);
    sum({.step = step_, .kind = "SUM", .group = "test accuracy"}, total);
    result_.test_accuracy = total / static_cast<double>(count);
  }

  double mean_over_ranks(double value) {
    sum({.step = step_, .kind = "SUM", .group = "loss"}, value);
    return value / job_.strategy.world_size;
  }

  void sum(const Operation& operation, double& value) {
    world_sum(options_.channels, operation, {&value, 1});
  }

  void show(RankPhase phase) {
    if (recorder_ != nullptr) recorder_->phase(recorded_phase(phase));
    options_.board.enter(options_.rank, phase, step_, 0);
    executor_.observe([board = options_.board, rank = options_.rank, phase,
                       &step = step_](int action) { board.enter(rank, phase, step, action); });
  }

  ProgressState progress_state(int64_t epoch) const {
    return {.restarts = job_.attempt.restarts,
            .step = step_,
            .steps = job_.steps,
            .epoch = epoch + 1,
            .epochs = job_.config.epochs,
            .loss = job_.notice.empty() ? std::optional(last_loss_) : std::nullopt,
            .unit = unit_.name,
            .per_s = last_per_s_};
  }

  void say(const std::string& line) {
    spdlog::info(line);
    if (progress_) progress_->say(line);
  }

  const Job& job_;
  TrainerOptions options_;
  profiler::Recorder* recorder_ = profiler::Recorder::active();
  PeakWatch peaks_;
  RankState state_;
  std::optional<NullInspection> inspection_;
  Executor executor_;
  std::optional<Checkpointer> checkpoints_;
  TrainData train_data_;
  std::unique_ptr<BatchSource> test_data_;
  std::unique_ptr<Progress> progress_;
  std::ofstream metrics_;
  SpeedUnit unit_ = speed_unit(job_);
  MeanLoss logged_loss_;
  MeanLoss epoch_loss_;
  std::vector<float> step_ms_;
  double logged_ms_ = 0;  // of the steps since the last line of metrics
  double last_loss_ = 0;
  double last_per_s_ = 0;  // 0: not measured yet
  int64_t step_ = 0;
  int64_t first_step_ = 0;  // of this attempt
  bool stops_ = false;      // after this step, though more were planned
  TrainResult result_;
};

}  // namespace

TrainResult train_rank(const Job& job, const TrainerOptions& options) {
  keep_freed_memory();
  keep_backward_on_this_thread();
  choose_attention(job.config.attention);
  at::set_num_threads(static_cast<int>(job.config.threads));
  return Trainer(job, options).run();
}

std::string to_json(const TrainResult& result) {
  nlohmann::ordered_json json = {
      {"schema", "shardlens.run/1"},
      {"status", "ok"},
      {"steps", result.steps},
      {"epochs", result.epochs},
      {"train_loss", result.train_loss},
      {"test_accuracy", nullptr},
      {"step_ms", {{"median", result.median_step_ms}, {"p95", result.p95_step_ms}}},
      {"restarts", result.restarts}};
  if (result.test_accuracy) json["test_accuracy"] = *result.test_accuracy;
  if (result.peak) json["memory"]["peak"] = peak_json(*result.peak);
  if (result.step_peak) json["memory"]["step_peak"] = peak_json(*result.step_peak);
  if (result.peak) json["memory"]["alloc_retries"] = result.allocation_retries;
  if (result.checkpoints.count > 0) {
    json["checkpoints"] = {{"count", result.checkpoints.count},
                           {"waited_ms", result.checkpoints.waited_ms}};
  }
  if (!result.notice.empty()) json["notice"] = result.notice;
  if (!result.init.empty()) {
    json["init"] = {{"path", result.init}, {"verified", result.init_is_verified}};
  }
  return json.dump(2) + "\n";
}

std::string failure_json(const UnfinishedRun& end) {
  const nlohmann::ordered_json json = {{"schema", "shardlens.run/1"},
                                       {"status", "failed"},
                                       {"reason", end.reason},
                                       {"steps", end.steps},
                                       {"restarts", end.restarts}};
  return json.dump(2) + "\n";
}

std::string preempted_json(const UnfinishedRun& end) {
  const nlohmann::ordered_json json = {{"schema", "shardlens.run/1"},
                                       {"status", "preempted"},
                                       {"steps", end.steps},
                                       {"restarts", end.restarts}};
  return json.dump(2) + "\n";
}

}  // namespace shardlens::runtime
