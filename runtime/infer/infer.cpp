#include "runtime/infer/infer.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/durable_files.h"
#include "base/input_file.h"
#include "base/limits.h"
#include "models/model.h"
#include "planner/config/options.h"
#include "runtime/checkpoint/checkpoint_reader.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "runtime/checkpoint/run_directory.h"
#include "runtime/comm/board/shared_region.h"
#include "runtime/execute/device.h"
#include "runtime/execute/executor.h"
#include "runtime/launch/rendezvous.h"
#include "runtime/train/batches.h"
#include "runtime/train/job.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

constexpr std::array kFashionNames = {"T-shirt/top", "Trouser", "Pullover", "Dress", "Coat",
                                      "Sandal",      "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};

// --- weights -----------------------------------------------------------------------------------

/// Holds the folder in which every byte is as written, and the folders that were passed over.
struct FoundWeights {
  fs::path folder;
  std::vector<std::string> passed_over;

  /// Takes the folder and returns true if the folder is whole; else passes over it.
  bool take(const fs::path& candidate) {
    const Problem fault = fault_of(candidate);
    if (fault) {
      passed_over.push_back(fmt::format("{}: {}", candidate.string(), *fault));
    } else {
      folder = candidate;
    }
    return !fault;
  }
};

[[noreturn]] void refuse_run(const InferOptions& options, const std::string& what,
                             const std::vector<std::string>& passed_over, const std::string& fix) {
  throw std::invalid_argument(fmt::format(
      "--run {}: {}{}; {}", options.run.string(), what,
      passed_over.empty() ? "" : fmt::format(" ({})", fmt::join(passed_over, "; ")), fix));
}

void find_newest(FoundWeights& weights, const InferOptions& options) {
  const auto all = CheckpointStore(options.run / kCheckpointsFolder).list();
  for (auto one = all.rbegin(); one != all.rend(); ++one) {
    if (weights.take(one->path)) return;
  }
  refuse_run(options, "has no model and no whole checkpoint", weights.passed_over,
             "train it first, or see shardlens checkpoint verify");
}

void find_best(FoundWeights& weights, const InferOptions& options) {
  FoundWeights whole = weights;
  double best = -1;
  for (const StoredCheckpoint& one : CheckpointStore(options.run / kCheckpointsFolder).list()) {
    if (!whole.take(one.path)) continue;
    const auto state = CheckpointReader(one.path).state();
    const auto accuracy = state ? state->test_accuracy : std::nullopt;
    if (!accuracy || *accuracy < best) continue;  // if equal, the newer one wins
    best = *accuracy;
    weights.folder = one.path;
  }
  weights.passed_over = whole.passed_over;
  if (!weights.folder.empty()) return;
  refuse_run(options, "no whole checkpoint has a test accuracy", weights.passed_over,
             "give --from latest");
}

FoundWeights find_weights(const InferOptions& options) {
  FoundWeights weights;
  const fs::path model = options.run / kModelFolder;
  if (options.from == WeightsSource::best) {
    find_best(weights, options);
  } else if (options.from == WeightsSource::latest || !fs::exists(model) || !weights.take(model)) {
    find_newest(weights, options);
  }
  return weights;
}

// --- the job -----------------------------------------------------------------------------------

/// Returns the folder in which train was started, to which an older release left paths relative;
/// nothing if the run has been moved.
std::optional<fs::path> started_in(const planner::Config& config, const fs::path& run) {
  fs::path folder = fs::canonical(run);
  const fs::path storage = config.storage;
  if (storage.is_absolute() || folder.filename() != config.name) return std::nullopt;
  folder = folder.parent_path();
  for (auto part = storage.end(); part != storage.begin();) {
    if (--part; part->empty() || *part == ".") continue;
    if (folder.filename() != *part) return std::nullopt;
    folder = folder.parent_path();
  }
  return folder;
}

planner::Config with_inputs_found(const planner::Config& config, const InferOptions& options) {
  std::vector<fs::path> bases = {fs::current_path()};
  if (const auto folder = started_in(config, options.run)) bases.insert(bases.begin(), *folder);
  const bool is_file = config.model.ends_with(".json");
  for (const fs::path& base : bases) {
    if (is_file && !fs::exists(base / config.model)) continue;
    return planner::with_absolute_inputs(config, base);
  }
  const bool is_relative = fs::path(config.model).is_relative();
  throw std::invalid_argument(fmt::format(
      "--run {}: was trained with --model {}, which is missing{}", options.run.string(),
      config.model,
      is_relative ? "; run infer in the folder that the path starts at" : "; put the file back"));
}

planner::Config config_of_run(const InferOptions& options) {
  const fs::path file = options.run / "config.json";
  if (!fs::exists(file)) {
    throw std::invalid_argument(fmt::format(
        "--run {}: is not a run; give a folder that train has made", options.run.string()));
  }
  planner::Config config;
  planner::read_json(config, read_file(file, kWritten.bytes, "give a run"), file.string());
  return with_inputs_found(config, options);
}

/// Prepares a job with the run's model and data, and otherwise only what a forward pass needs.
Job prepare(const planner::Config& run, const InferOptions& options) {
  planner::Config config;
  config.model = run.model;
  config.seq = run.seq;
  config.attention = run.attention;
  config.data = options.image.empty() ? run.data : planner::kSyntheticData;
  config.optimizer = planner::OptimizerKind::sgd;  // keeps nothing beside the weights
  config.strategy =
      options.workers == 1 ? planner::StrategyKind::single : planner::StrategyKind::fsdp;
  config.workers = options.workers;
  config.batch = 1;
  config.checkpoint_every = "none";
  config.timeout_s = options.timeout_s;
  config.device = device_named(options.device);
  choose_device(config);
  Job job = prepare_job(config);
  if (job.device.kind == DeviceKind::null) {
    throw std::invalid_argument(
        fmt::format("--device {}: computes nothing; give cpu or cuda", options.device));
  }
  if (job.spec.sample.input != models::InputKind::images) {
    throw std::invalid_argument(
        fmt::format("--run {}: its model {} takes no images", options.run.string(), job.spec.name));
  }
  return job;
}

std::vector<std::string> class_names(const planner::Config& run) {
  if (run.data == "fashion-mnist") return {kFashionNames.begin(), kFashionNames.end()};
  if (models::is_image_folder(run.data)) return models::list_image_folder(run.data).classes;
  return {};
}

int64_t test_index(const Job& job, int64_t index) {
  if (index >= 0 && index < job.found_data.test_samples) return index;
  throw std::invalid_argument(
      job.found_data.test_samples == 0
          ? fmt::format("--index {}: --data {} has no test images; give --image FILE", index,
                        job.config.data)
          : fmt::format("--index {}: the data has {} test images; give 0 to {}", index,
                        job.found_data.test_samples, job.found_data.test_samples - 1));
}

/// Returns the image as [1, channels, px, px], as in training, on the CPU. A file's target is -1.
models::Batch load_sample(const Job& job, const InferOptions& options) {
  if (!options.image.empty()) {
    const std::vector<models::ImageFile> files = {{.path = options.image, .label = -1}};
    try {
      return FileBatches(files, job.spec.sample.shape[1], job.spec.sample.shape[0], at::kCPU)
          .at(at::zeros({1}, at::kLong));
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(fmt::format("--image {}", error.what()));
    }
  }
  const at::Tensor index = at::full({1}, test_index(job, *options.index), at::kLong);
  if (job.found_data.kind == DataKind::idx) return Batches(job.data.test).at(index);
  return FileBatches(job.folder.test, job.spec.sample.shape[1], job.spec.sample.shape[0], at::kCPU)
      .at(index);
}

// --- the pass ----------------------------------------------------------------------------------

/// Returns the logits of one rank, [classes] on the CPU.
at::Tensor logits_of_rank(const Job& job, int rank, void* region, const fs::path& weights,
                          const models::Batch& sample) {
  const at::NoGradGuard no_grad;
  at::set_num_threads(static_cast<int>(job.config.threads));
  const c10::Device device = open_device(job.device, job.gpus > 0 ? rank % job.gpus : 0);
  const auto streams = make_streams(device);
  const auto links = join(job, rank, region, *streams);
  RankState state(job.spec, job.evaluate, rank, device, optimizer_options(job.config));
  models::load_parameters(job.spec, weights.string(), [&](int parameter, const at::Tensor& value) {
    state.set_parameter(parameter, value);
  });
  Executor executor(job.spec, state, *streams, links->channels(), executor_options(job.config));
  executor.run(job.evaluate, 0, [&] {
    return models::Batch{.input = sample.input.to(device), .targets = sample.targets.to(device)};
  });
  at::Tensor logits = executor.logits()[0].to(at::kCPU, at::kFloat);
  world_barrier(links->channels(), {.step = 0, .kind = "BARRIER", .group = "infer"});
  return logits;
}

at::Tensor run_ranks(const Job& job, const fs::path& weights, const models::Batch& sample) {
  choose_attention(job.config.attention);
  const auto region = SharedRegion::create(region_bytes(job));
  const Board board = Board::initialise(region.data(), job.strategy.world_size);
  std::vector<at::Tensor> logits(static_cast<size_t>(job.strategy.world_size));
  std::vector<std::exception_ptr> failures(logits.size());
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < job.strategy.world_size; ++rank) {
    ranks.emplace_back([&, rank] {
      try {
        logits[static_cast<size_t>(rank)] =
            logits_of_rank(job, rank, region.data(), weights, sample);
      } catch (const std::exception& error) {
        failures[static_cast<size_t>(rank)] = std::current_exception();
        board.abort_note().raise(error.what());
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  return logits.front();
}

GreyPicture picture_of(const at::Tensor& input) {
  const at::Tensor light = input[0].mean(0).mul(0.5).add(0.5).contiguous();
  const auto* values = light.data_ptr<float>();
  return {.height = light.size(0),
          .width = light.size(1),
          .light = std::vector<float>(values, values + light.numel())};
}

std::vector<Guess> guesses_of(const at::Tensor& logits, const std::vector<std::string>& names) {
  const at::Tensor probabilities = logits.to(at::kDouble).softmax(0);
  std::vector<Guess> guesses;
  for (int64_t label = 0; label < probabilities.numel(); ++label) {
    const bool is_named = label < static_cast<int64_t>(names.size());
    guesses.push_back({.label = label,
                       .name = is_named ? names[static_cast<size_t>(label)] : "",
                       .probability = probabilities[label].item<double>()});
  }
  std::ranges::stable_sort(guesses, std::ranges::greater(), &Guess::probability);
  return guesses;
}

}  // namespace

Inference infer(const InferOptions& options) {
  const planner::Config run = config_of_run(options);
  FoundWeights found = find_weights(options);
  Inference inference{.weights = std::move(found.folder),
                      .passed_over = std::move(found.passed_over),
                      .picture = {},
                      .truth = {},
                      .guesses = {}};
  const Job job = prepare(run, options);
  models::check_weights(job.spec, inference.weights.string());
  models::Batch sample = load_sample(job, options);
  const int64_t target = sample.targets[0].item<int64_t>();
  sample.targets.clamp_min_(0);  // the pass also computes a loss
  inference.picture = picture_of(sample.input);
  inference.guesses = guesses_of(run_ranks(job, inference.weights, sample), class_names(run));
  for (const Guess& guess : inference.guesses) {
    if (guess.label == target) inference.truth = guess;
  }
  return inference;
}

}  // namespace shardlens::runtime
