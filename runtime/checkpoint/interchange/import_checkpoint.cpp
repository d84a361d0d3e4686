#include "runtime/checkpoint/interchange/import_checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/durable_files.h"
#include "planner/config/arguments.h"
#include "planner/config/optimizer_options.h"
#include "planner/config/options.h"
#include "planner/config/strategy.h"
#include "planner/config/training_data.h"
#include "planner/schedule/schedule.h"
#include "runtime/checkpoint/checkpoint_writer.h"
#include "runtime/checkpoint/interchange/saved_state.h"
#include "runtime/checkpoint/interchange/trained_model.h"
#include "runtime/checkpoint/run_directory.h"
#include "runtime/checkpoint/verification.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

/// Holds what will be written, before any file is made.
struct Import {
  models::ModelSpec spec;
  std::vector<std::vector<std::string>> moments;  // by parameter
  CheckpointState state;
};

/// Returns a name from the user's file, as one line of ASCII.
std::string quoted(const std::string& name) {
  return nlohmann::json(name).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

/// Returns names with their dtypes: "steps" (I64), "mask" (U8).
std::vector<std::string> integers_in(const TrainedModel& model) {
  std::vector<std::string> names;
  for (const std::string& name : model.order) {
    const std::string& dtype = model.parameters.at(name).weight->dtype;
    if (is_integer(dtype)) names.push_back(fmt::format("{} ({})", quoted(name), dtype));
  }
  return names;
}

/// Lists the first few of many names.
std::string list_names(std::vector<std::string> names) {
  constexpr size_t kShown = 5;
  const size_t more = names.size() - std::min(names.size(), kShown);
  names.resize(names.size() - more);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     more == 0 ? "" : fmt::format(" and {} more", more));
}

/// Returns the spec of a model that no flag describes: all tensors except integers.
models::ModelSpec spec_of(const TrainedModel& model, const fs::path& source) {
  models::ModelSpec spec;
  for (const std::string& name : model.order) {
    const SavedTensor& weight = *model.parameters.at(name).weight;
    if (!is_integer(weight.dtype)) spec.parameters.push_back({.name = name, .shape = weight.shape});
  }
  if (!spec.parameters.empty()) return spec;
  throw std::invalid_argument(
      fmt::format("{}: has no floating-point tensors, all that a checkpoint keeps, but {}; save "
                  "the weights as F32, BF16, F16 or F64",
                  source.string(), list_names(integers_in(model))));
}

std::string left_out(const TrainedModel& model) {
  const std::vector<std::string> names = integers_in(model);
  if (names.empty()) return "";
  return fmt::format(
      "warning: left out, because a checkpoint keeps only floating-point tensors: {}\n",
      list_names(names));
}

void expect_model(const TrainedModel& model, const models::ModelSpec& spec,
                  const fs::path& source) {
  const auto refuse = [&](const std::string& why) {
    throw std::invalid_argument(
        fmt::format("{}: {}; give the --model that it was saved from", source.string(), why));
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
    if (!known) refuse(fmt::format("has {}, which {} lacks", name, spec.name));
  }
}

/// Returns the moments that each parameter has. Moments of another shape are ignored.
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

/// Returns, by parameter, whether a run with these flags leaves it untrained.
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

/// Returns the moments that a run with these flags keeps for each parameter: a resumed run must
/// find all of them.
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
          "{}: has no {} of {}, which --optimizer {} needs to resume; give the optimizer that it "
          "was saved with, or import it with --out and start a new run with --init",
          source.string(), name, parameter.name, to_string(config.optimizer)));
    }
  }
  return wanted;
}

/// Holds the bytes of all files. They are checked to make up the tensors before any file is made.
struct Contents {
  FileLayout layout;
  Fp32Ranges values;
};

/// Runs `read`, and turns its errors into wrong use that names the source: the user must fix what
/// the user's file lacks, wherever the fault is found.
template <class Read>
auto as_wrong_use(const fs::path& source, const Read& read) {
  try {
    return read();
  } catch (const std::runtime_error& error) {
    const std::string what = error.what();
    const bool is_named = what.find(source.string()) != std::string::npos;
    throw std::invalid_argument(is_named ? what : fmt::format("{}: {}", source.string(), what));
  }
}

bool is_utf8(const std::string& text) {
  try {
    return !nlohmann::json(text).dump().empty();
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

/// Throws std::runtime_error if our files cannot hold a name, or if two names are the same.
void expect_names(const Import& import) {
  std::set<std::string> names;
  const auto expect = [&](const std::string& name) {
    if (name != "__metadata__" && is_utf8(name) && names.insert(name).second) return;
    throw std::runtime_error(
        fmt::format("a checkpoint cannot hold the name {}: taken, or not UTF-8", quoted(name)));
  };
  for (size_t i = 0; i < import.spec.parameters.size(); ++i) {
    const std::string& name = import.spec.parameters[i].name;
    expect(name);
    for (const std::string& moment : import.moments[i]) expect(name + "." + moment);
  }
}

Contents contents_of(const Import& import, const TrainedModel& model, const fs::path& source) {
  return as_wrong_use(source, [&] {
    expect_names(import);
    Contents contents{.layout = checkpoint_layout(import.spec, import.moments), .values = {}};
    for (size_t i = 0; i < contents.layout.parameters.size(); ++i) {
      const std::vector<PlacedTensor>& placed = contents.layout.parameters[i];
      const auto& parameter = model.parameters.at(import.spec.parameters[i].name);
      contents.values.add(placed.front(), *parameter.weight);
      for (size_t m = 1; m < placed.size(); ++m) {
        contents.values.add(placed[m], *parameter.moments.at(import.moments[i][m - 1]));
      }
    }
    return contents;
  });
}

void write(const Import& import, const Contents& contents, const CheckpointStore& store) {
  write_checkpoint({.store = store,
                    .wanted = {.wanted = true},
                    .rank = 0,
                    .world_size = 1,
                    .deadline = std::chrono::seconds(60)},
                   contents.layout, {.ranges = contents.values.ranges(), .progress = {}},
                   import.state);
}

std::string summary(const Import& import, const fs::path& path) {
  const auto kept = std::ranges::count_if(import.moments, [](const auto& m) { return !m.empty(); });
  return fmt::format("{}: {} parameters in {} tensors, optimizer state of {}, step {}\n",
                     path.string(), import.spec.numel(), import.spec.parameters.size(), kept,
                     import.state.step);
}

/// Returns the program's settings that the flags change. The user is warned about them, since
/// training would continue with other settings than it began with.
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
    text += fmt::format("warning: it was saved with {} {}; train continues with {}\n", name,
                        found->second, value);
  }
  return text;
}

std::string import_as_run(const TrainedModel& model, const fs::path& source,
                          const std::vector<std::string>& flags) {
  planner::Config config = planner::with_absolute_inputs(planner::parse_arguments(flags).config);
  if (config.name.empty()) {
    throw std::invalid_argument(
        "checkpoint import: give --out FOLDER, or --name RUN and the other flags of the training "
        "to resume");
  }
  // Code that needs a device here uses the CPU; train chooses its own device.
  if (!config.device.kind) config.device.kind = DeviceKind::cpu;
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
  const Contents contents = contents_of(import, model, source);
  const RunDirectory run = RunDirectory::open(config);
  const CheckpointStore store(run.path() / kCheckpointsFolder);
  if (!store.list().empty()) {
    throw std::invalid_argument(
        fmt::format("--name {}: the run has checkpoints of its own; give another name, or --fresh "
                    "to start over",
                    config.name));
  }
  write(import, contents, store);
  return summary(import, store.list().back().path) + differences(model, config) +
         fmt::format("train with the same flags resumes it: epoch {} of {}\n",
                     import.state.epoch + 1, config.epochs);
}

std::string import_alone(const TrainedModel& model, const fs::path& source,
                         const fs::path& folder) {
  const bool was_there = fs::exists(folder);
  if (was_there && !fs::is_empty(folder)) {
    throw std::invalid_argument(
        fmt::format("--out {}: already exists; give a new folder", folder.string()));
  }
  Import import{.spec = spec_of(model, source), .moments = {}, .state = {}};
  import.moments = moments_in(model, import.spec);
  import.state.step = model.steps.value_or(0);
  import.state.optimizer_steps = static_cast<double>(import.state.step);
  import.state.configuration = "{}";
  const Contents contents = contents_of(import, model, source);
  const CheckpointStore store(fs::absolute(folder).lexically_normal());
  try {
    write(import, contents, store);
  } catch (const std::exception&) {
    store.clear();
    if (was_there) make_folders(folder);
    throw;
  }
  return summary(import, store.list().back().path) + left_out(model);
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
  const Problem unverified = why_unverified(source);
  const SavedState state = as_wrong_use(source, [&] { return read_saved_state(source); });
  const TrainedModel model = as_wrong_use(source, [&] { return find_model(state, source); });
  const std::string told =
      is_alone ? import_alone(model, source, flags.back()) : import_as_run(model, source, flags);
  return told + (unverified ? fmt::format("{}: not verified: {}\n", source.string(), *unverified)
                            : fmt::format("{}: verified by the manifest.json beside it\n",
                                          source.string()));
}

}  // namespace shardlens::runtime
