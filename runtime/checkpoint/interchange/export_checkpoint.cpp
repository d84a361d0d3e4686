#include "runtime/checkpoint/interchange/export_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "base/document/pickle_writer.h"
#include "base/durable_files.h"
#include "base/limits.h"
#include "base/strict_json.h"
#include "models/weights/torch_file.h"
#include "planner/config/optimizer_options.h"
#include "runtime/checkpoint/interchange/dcp_writer.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

using models::SafetensorsTensor;

struct State {
  std::vector<SafetensorsTensor> weights;
  std::vector<SafetensorsTensor> moments;  // "head.weight.exp_avg"
};

State state_in(const CheckpointReader& reader) {
  State state;
  size_t file = 0;
  for (const ManifestFile& one : reader.manifest().files) {
    if (!one.name.ends_with(".safetensors")) continue;
    auto& tensors = one.name.starts_with("optimizer-") ? state.moments : state.weights;
    const auto& found = reader.files()[file++].tensors();
    tensors.insert(tensors.end(), found.begin(), found.end());
  }
  return state;
}

void expect_new(const fs::path& path) {
  if (!fs::exists(path)) return;
  throw std::invalid_argument(fmt::format("{}: already exists; give a new name", path.string()));
}

/// Splits "head.weight.exp_avg" into "head.weight" and "exp_avg".
std::pair<std::string, std::string> owner_and_moment(const std::string& name) {
  const size_t dot = name.rfind('.');
  return {name.substr(0, dot), name.substr(dot + 1)};
}

/// Makes the keys of one dict, under the key that the program chose.
class Keys {
 public:
  explicit Keys(const std::string& prefix) {
    if (!prefix.empty()) prefix_ = {prefix};
  }
  std::vector<std::string> operator()(std::vector<std::string> keys) const {
    keys.insert(keys.begin(), prefix_.begin(), prefix_.end());
    return keys;
  }

 private:
  std::vector<std::string> prefix_;
};

planner::OptimizerOptions options_of(const CheckpointState& state) {
  planner::Config config;
  try {
    const auto json = parse_strict_json(state.configuration, kWritten);
    const std::string optimizer = json.value("optimizer", std::string());
    config.optimizer = choice_named<planner::OptimizerKind>(optimizer).value_or(config.optimizer);
    config.lr = json.value("lr", config.lr);
    config.momentum = json.value("momentum", config.momentum);
    config.weight_decay = json.value("weight_decay", config.weight_decay);
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(
        fmt::format("the checkpoint's configuration is damaged ({})", problem_of(error)));
  }
  return optimizer_options(config);
}

using Setting = std::pair<const char*, std::string>;

template <class Write>
std::string pickled(const Write& write) {
  PickleWriter pickle;
  write(pickle);
  return std::move(pickle).stop();
}

std::string real(double value) {
  return pickled([&](PickleWriter& pickle) { pickle.real(value); });
}
std::string boolean(bool value) {
  return pickled([&](PickleWriter& pickle) { pickle.boolean(value); });
}
std::string none() {
  return pickled([](PickleWriter& pickle) { pickle.none(); });
}

/// Returns the keys that a torch.optim group has beside its parameters.
std::vector<Setting> settings_of(const planner::OptimizerOptions& options) {
  std::vector<Setting> settings = {
      {"lr", real(options.lr)},           {"weight_decay", real(options.weight_decay)},
      {"maximize", boolean(false)},       {"foreach", none()},
      {"differentiable", boolean(false)}, {"fused", none()}};
  if (options.kind == planner::OptimizerKind::sgd) {
    settings.emplace_back("momentum", real(options.momentum));
    settings.emplace_back("dampening", real(0));
    settings.emplace_back("nesterov", boolean(false));
    return settings;
  }
  settings.emplace_back("betas", pickled([&](PickleWriter& pickle) {
                          pickle.mark().real(options.beta1).real(options.beta2).tuple();
                        }));
  settings.emplace_back("eps", real(options.eps));
  settings.emplace_back("amsgrad", boolean(false));
  settings.emplace_back("capturable", boolean(false));
  settings.emplace_back("decoupled_weight_decay",
                        boolean(options.kind == planner::OptimizerKind::adamw));
  return settings;
}

/// Adds what get_state_dict returns for an optimizer, in DCP's form.
void add_optimizer(const Keys& keys, const State& state, const CheckpointState& position,
                   const float& steps, std::vector<DcpTensor>& tensors,
                   std::vector<DcpValue>& values) {
  std::vector<std::string> stepped;
  for (const SafetensorsTensor& moment : state.moments) {
    const auto [owner, name] = owner_and_moment(moment.name);
    tensors.push_back({keys({"optim", "state", owner, name}), moment});
    if (stepped.empty() || stepped.back() != owner) stepped.push_back(owner);
  }
  const planner::OptimizerOptions options = options_of(position);
  if (options.kind != planner::OptimizerKind::sgd) {
    const SafetensorsTensor step{"step", "F32", {}, std::as_bytes(std::span(&steps, 1))};
    for (const std::string& owner : stepped) {
      tensors.push_back({keys({"optim", "state", owner, "step"}), step});
    }
  }
  for (const auto& [name, pickle] : settings_of(options)) {
    values.push_back({keys({"optim", "param_groups", "0", name}), pickle});
  }
  if (stepped.empty()) {
    for (const SafetensorsTensor& weight : state.weights) stepped.push_back(weight.name);
  }
  values.push_back(
      {keys({"optim", "param_groups", "0", "params"}), pickled([&](PickleWriter& pickle) {
         pickle.empty_list().mark();
         for (const std::string& name : stepped) pickle.text(name);
         pickle.append_items();
       })});
}

void export_dcp(const CheckpointReader& reader, const State& state, const ExportTargets& targets) {
  const Keys keys(targets.prefix);
  std::vector<DcpTensor> tensors;
  std::vector<DcpValue> values;
  for (const SafetensorsTensor& weight : state.weights) {
    tensors.push_back({keys({"model", weight.name}), weight});
  }
  float steps = 0;
  if (reader.state()) {
    steps = static_cast<float>(reader.state()->optimizer_steps);
    add_optimizer(keys, state, *reader.state(), steps, tensors, values);
    // The value is the index of the last whole epoch, because programs resume with the next one.
    const int64_t epoch = reader.state()->epoch - 1;
    values.push_back({keys({"epoch"}), pickled([&](PickleWriter& p) { p.number(epoch); })});
  }
  write_dcp(targets.dcp, tensors, values);
}

void export_pt(const State& state, const fs::path& path) {
  uint64_t bytes = 0;
  for (const SafetensorsTensor& weight : state.weights) bytes += weight.data.size();
  if (bytes > models::kMostTorchFileBytes / 2) {
    throw std::invalid_argument(
        fmt::format("--pt {}: the model is over 2 GiB, more than one archive holds; give "
                    "--safetensors or --dcp",
                    path.string()));
  }
  const fs::path target = fs::absolute(path), temporary = target.string() + ".tmp";
  std::ofstream out(temporary, std::ios::binary);
  models::write_torch_file(out, state.weights);
  out.close();
  if (!out) throw std::runtime_error(fmt::format("{}: cannot be written", path.string()));
  SharedFile(temporary).sync();
  rename_durably(temporary, target);
}

}  // namespace

std::string export_checkpoint(const CheckpointReader& reader, const ExportTargets& targets) {
  const State state = state_in(reader);
  std::string said;
  for (const std::string& target : {targets.dcp, targets.safetensors, targets.pt}) {
    if (target.empty()) continue;
    expect_new(target);
    said += fmt::format("{}: step {} of {}\n", target, reader.manifest().step,
                        reader.folder().string());
  }
  if (!targets.dcp.empty()) export_dcp(reader, state, targets);
  if (!targets.safetensors.empty()) {
    models::write_safetensors(targets.safetensors, state.weights, {{"format", "pt"}});
  }
  if (!targets.pt.empty()) export_pt(state, targets.pt);
  return said;
}

}  // namespace shardlens::runtime
