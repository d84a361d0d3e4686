#include "runtime/interchange/import_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <utility>

#include "planner/optimizer_options.h"
#include "planner/schedule.h"
#include "planner/strategy.h"
#include "planner/training_data.h"
#include "runtime/checkpoint_writer.h"
#include "runtime/interchange/saved_state.h"
#include "runtime/interchange/trained_model.h"
#include "runtime/run_directory.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

/// What is written, before anything is.
struct Import {
  models::ModelSpec spec;
  std::vector<std::vector<std::string>> moments;  // by parameter
  CheckpointState state;
};

/// Of a model that nobody has told of: whatever there is of floating-point numbers.
models::ModelSpec spec_of(const TrainedModel& model) {
  models::ModelSpec spec;
  for (const std::string& name : model.order) {
    const SavedTensor& weight = *model.parameters.at(name).weight;
    const bool is_float = weight.dtype.starts_with("F") || weight.dtype.starts_with("BF");
    if (is_float) spec.parameters.push_back({.name = name, .shape = weight.shape});
  }
  return spec;
}

void expect_model(const TrainedModel& model, const models::ModelSpec& spec,
                  const fs::path& source) {
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument(
        fmt::format("{}: {}; give the --model that it was saved of", source.string(), why));
  };
  for (const models::ParameterSpec& parameter : spec.parameters) {
    const auto found = model.parameters.find(parameter.name);
    if (found == model.parameters.end()) {
      refuse(fmt::format("has no {}, which {} has", parameter.name, spec.name));
    }
    if (found->second.weight->shape != parameter.shape) {
      refuse(fmt::format("{} has shape [{}], not [{}] as in {}", parameter.name,
                         fmt::join(found->second.weight->shape, ", "),
                         fmt::join(parameter.shape, ", "), spec.name));
    }
  }
  for (const std::string& name : model.order) {
    const bool known = std::ranges::find(spec.parameters, name, &models::ParameterSpec::name) !=
                       spec.parameters.end();
    if (!known) refuse(fmt::format("has {}, which {} has not", name, spec.name));
  }
}

/// As many moments as each parameter has; of a shape of their own they are of no use.
std::vector<std::vector<std::string>> moments_in(const TrainedModel& model,
                                                 const models::ModelSpec& spec) {
  std::vector<std::vector<std::string>> moments;
  for (const models::ParameterSpec& parameter : spec.parameters) {
    moments.emplace_back();
    for (const auto& [name, tensor] : model.parameters.at(parameter.name).moments) {
      if (tensor->shape == parameter.shape) moments.back().push_back(name);
    }
  }
  return moments;
}

/// Parameters that a run with these flags leaves as they are.
std::vector<bool> frozen_in(const models::ModelSpec& spec, const planner::Config& config) {
  std::vector<bool> frozen(spec.parameters.size(), false);
  const planner::Schedule schedule =
      planner::build_schedule(spec, planner::strategy_of(config), planner::Pass::train);
  for (const planner::Group& group : schedule.groups) {
    for (const planner::Bucket& bucket : group.buckets) {
      for (const planner::BucketEntry& entry : bucket.entries) {
        frozen[static_cast<size_t>(entry.parameter)] = bucket.frozen;
      }
    }
  }
  return frozen;
}

/// What a run with these flags keeps of each parameter: one that is resumed must find all of it.
std::vector<std::vector<std::string>> moments_wanted(const TrainedModel& model,
                                                     const models::ModelSpec& spec,
                                                     const planner::Config& config,
                                                     const fs::path& source) {
  const auto kept = moments_of(optimizer_options(config));
  const std::vector<bool> frozen = frozen_in(spec, config);
  std::vector<std::vector<std::string>> wanted(spec.parameters.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const models::ParameterSpec& parameter = spec.parameters[i];
    if (!frozen[i]) wanted[i].assign(kept.begin(), kept.end());
    const auto& held = model.parameters.at(parameter.name).moments;
    for (const std::string& name : wanted[i]) {
      const auto found = held.find(name);
      if (found != held.end() && found->second->shape == parameter.shape) continue;
      throw std::invalid_argument(fmt::format(
          "{}: has no {} of {}, which --optimizer {} goes on from; give the optimizer that it was "
          "saved of, or import it with --out and start anew with --init",
          source.string(), name, parameter.name, config.optimizer));
    }
  }
  return wanted;
}

void write(const Import& import, const TrainedModel& model, const CheckpointStore& store) {
  const FileLayout layout = checkpoint_layout(import.spec, import.moments);
  Fp32Ranges values;
  for (size_t i = 0; i < layout.parameters.size(); ++i) {
    const std::vector<PlacedTensor>& placed = layout.parameters[i];
    const auto& parameter = model.parameters.at(import.spec.parameters[i].name);
    values.add(placed.front(), *parameter.weight);
    for (size_t m = 1; m < placed.size(); ++m) {
      values.add(placed[m], *parameter.moments.at(import.moments[i][m - 1]));
    }
  }
  write_checkpoint({.store = store,
                    .wanted = {.wanted = true},
                    .rank = 0,
                    .world_size = 1,
                    .deadline = std::chrono::seconds(60)},
                   layout, {.ranges = values.ranges(), .progress = {}}, import.state);
}

std::string summary(const Import& import, const fs::path& path) {
  const auto kept = std::ranges::count_if(import.moments, [](const auto& m) { return !m.empty(); });
  return fmt::format("{}: {} parameters in {} tensors, optimizer state of {}, step {}\n",
                     path.string(), import.spec.numel(), import.spec.parameters.size(), kept,
                     import.state.step);
}

/// Settings that the program had and the flags change: said, since training would go on otherwise
/// than it began.
std::string differences(const TrainedModel& model, const planner::Config& config) {
  std::string text;
  const planner::OptimizerOptions options = optimizer_options(config);
  const std::map<std::string, double> settings = {{"lr", options.lr},
                                                  {"eps", options.eps},
                                                  {"weight_decay", options.weight_decay},
                                                  {"momentum", options.momentum}};
  for (const auto& [name, value] : settings) {
    const auto found = model.settings.find(name);
    if (found == model.settings.end() || found->second == value) continue;
    text += fmt::format("warning: it was saved with {} {}; train goes on with {}\n", name,
                        found->second, value);
  }
  return text;
}

std::string import_as_run(const TrainedModel& model, const fs::path& source,
                          const std::vector<std::string>& flags) {
  planner::Config config = planner::parse_arguments(flags).config;
  if (config.name.empty()) {
    throw std::invalid_argument(
        "checkpoint import: give --out FOLDER, or --name RUN and the other flags of the training "
        "that is to go on");
  }
  if (config.device == "auto") config.device = "cpu";  // train chooses for itself
  Import import{.spec = models::find_spec(config.model, config.seq), .moments = {}, .state = {}};
  expect_model(model, import.spec, source);
  import.moments = moments_wanted(model, import.spec, config, source);
  if (config.data == "auto") config.data = planner::data_for(import.spec);
  const planner::TrainingData data = planner::find_data(import.spec, config);
  const bool is_noise = data.kind == planner::DataKind::synthetic;
  const int64_t samples = is_noise ? synthetic_samples(config) : data.train_samples;
  const int64_t steps_per_epoch = steps_in_epoch(samples, config);
  const int64_t steps = model.steps.value_or(0);
  import.state = {.step = steps,
                  .epoch = steps / steps_per_epoch,
                  .epoch_samples = steps % steps_per_epoch * config.batch * config.accumulate *
                                   planner::world_size_of(config),
                  .optimizer_steps = static_cast<double>(steps),
                  .configuration = planner::run_identity(config)};
  const RunDirectory run = RunDirectory::open(config);
  const CheckpointStore store(run.path() / kCheckpointsFolder);
  if (!store.list().empty()) {
    throw std::invalid_argument(
        fmt::format("--name {}: the run has checkpoints of its own; give another name, or --fresh "
                    "to start over",
                    config.name));
  }
  write(import, model, store);
  return summary(import, store.list().back().path) + differences(model, config) +
         fmt::format("train with the same flags goes on with it: epoch {} of {}\n",
                     import.state.epoch + 1, config.epochs);
}

std::string import_alone(const TrainedModel& model, const fs::path& folder) {
  if (fs::exists(folder) && !fs::is_empty(folder)) {
    throw std::invalid_argument(
        fmt::format("--out {}: is there already; give a new folder", folder.string()));
  }
  Import import{.spec = spec_of(model), .moments = {}, .state = {}};
  import.moments = moments_in(model, import.spec);
  import.state.step = model.steps.value_or(0);
  import.state.optimizer_steps = static_cast<double>(import.state.step);
  import.state.configuration = "{}";
  const CheckpointStore store(fs::absolute(folder).lexically_normal());
  write(import, model, store);
  return summary(import, store.list().back().path);
}

}  // namespace

std::string import_checkpoint(const std::vector<std::string>& arguments) {
  if (arguments.empty() || arguments.front().starts_with("-")) {
    throw std::invalid_argument(
        "give checkpoint import SOURCE, then --out FOLDER or the flags of train; see --help");
  }
  const fs::path source = arguments.front();
  const std::vector<std::string> flags(arguments.begin() + 1, arguments.end());
  const bool is_alone = flags.size() == 2 && flags.front() == "--out";
  const SavedState state = read_saved_state(source);
  const TrainedModel model = find_model(state, source);
  return is_alone ? import_alone(model, flags.back()) : import_as_run(model, source, flags);
}

}  // namespace shardlens::runtime
