#include "planner/config/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "base/limits.h"
#include "base/shown.h"
#include "base/strict_json.h"

namespace shardlens::planner {

namespace {

const Option kOptions[] = {
    {"model", "NAME|FILE.json",
     "a preset (vit-tutorial, ...), a JSON file of a family and its sizes, or the config.json of a "
     "Llama or Mistral from Hugging Face",
     &Config::model},
    {"data", "auto|fashion-mnist|synthetic|DIR",
     "the packaged set, one random batch, or a folder of IDX files or of images by class; auto: "
     "fashion-mnist where the model takes its images, else synthetic",
     &Config::data},
    {"init", "FILE.safetensors", "start weights; default: drawn from --seed", &Config::init},
    {"seq", "T", "tokens per sample, if the model takes tokens; 0: the model's own", &Config::seq},
    {"batch", "B", "samples per rank and microbatch", &Config::batch, 1},
    {"epochs", "N", "passes over the training data", &Config::epochs, 1},
    {"steps", "N", "stop after N steps; 0: as many as the epochs have", &Config::steps},
    {"lr", "X", "learning rate", &Config::lr, 0, true},
    {"seed", "N", "seeds the start weights and the sample order", &Config::seed},
    {"optimizer", "adam|adamw|sgd", "which optimizer applies the gradients", &Config::optimizer},
    {"momentum", "X", "momentum of sgd", &Config::momentum},
    {"weight-decay", "X", "an L2 term for adam and sgd, decoupled for adamw",
     &Config::weight_decay},
    {"clip-norm", "X", "scale gradients down to this global norm; 0: no clipping",
     &Config::clip_norm},
    {"loss-scale", "auto|none|X",
     "scale of the loss; auto: dynamic if --param-dtype is fp16, else none", &Config::loss_scale},
    {"strategy", "single|ddp|fsdp|hsdp",
     "how the state is laid out over ranks; FSDP1's names (FULL_SHARD, ...) are accepted too",
     &Config::strategy},
    {"replicas", "R", "for hsdp: copies of the state, each shared by W / R neighbours",
     &Config::replicas, 1},
    {"reshard-after-forward", "auto|true|false|K",
     "free gathered weights between forward and backward; auto: all but the head's; K: keep a copy "
     "spread over K neighbours",
     &Config::reshard_after_forward},
    {"param-dtype", "fp32|bf16|fp16", "dtype in which parameters are gathered and computed with",
     &Config::param_dtype},
    {"reduce-dtype", "fp32|bf16|fp16", "dtype in which gradients are reduced",
     &Config::reduce_dtype},
    {"output-dtype", "auto|fp32|bf16|fp16", "dtype to which the model's outputs are cast",
     &Config::output_dtype},
    {"cast-inputs", "true|false",
     "cast the inputs of units to the dtype of their parameters; false: your own model does it",
     &Config::cast_inputs},
    {"offload", "none|params|optimizer|all",
     "what the host keeps: the fp32 masters; masters and moments, which it also steps; or all that "
     "is not in use",
     &Config::offload},
    {"forward-prefetch", "N", "gathers that may run ahead of the compute in forward",
     &Config::forward_prefetch},
    {"backward-prefetch", "N", "gathers that may run ahead of the compute in backward",
     &Config::backward_prefetch},
    {"wrap", "block|root|size:N|module:REGEX",
     "what is gathered together: a block, everything, runs of N elements or more, or a module "
     "whose name matches",
     &Config::wrap},
    {"ignore", "[module:]REGEX", "parameters that every rank keeps whole", &Config::ignore},
    {"freeze", "[module:]REGEX", "parameters that are not trained", &Config::freeze},
    {"keep-fp32", "[module:]REGEX", "parameters that --param-dtype leaves in fp32",
     &Config::keep_fp32},
    {"accumulate", "N", "microbatches per step", &Config::accumulate, 1},
    {"sync", "every|last", "reduce each microbatch's gradients, or their sum after the last",
     &Config::sync},
    {"recompute", "none|full|every:K",
     "blocks that keep only their input and compute again for backward: none, all, or every K-th",
     &Config::recompute},
    {"attention", "auto|flash|efficient|math", "LibTorch's attention kernel; auto: any",
     &Config::attention},
    {"communicator", "auto|local|gloo|nccl", "auto: nccl on GPUs, shared memory between CPU ranks",
     &Config::communicator},
    {"communicators", "1|2", "nccl: 2 keep gathers from queueing behind reductions",
     &Config::communicators},
    {"device", "auto|cpu|cuda|null:GPU",
     "where the ranks compute; null:GPU: on a simulated GPU, where memory is real and values are "
     "not; auto: cuda if there is a GPU, else cpu",
     &Config::device},
    {"capacity", "SIZE", "memory of the null device, e.g. 40GiB; default: that of its GPU",
     &Config::capacity},
    {"workers", "N", "ranks to start and watch on this host", &Config::workers, 1},
    {"world", "W", "number of all ranks, for --solo-rank; 0: as many as --workers", &Config::world},
    {"solo-rank", "R", "run only rank R of --world; its collectives do nothing; -1: no",
     &Config::solo_rank, -1},
    {"threads", "N", "threads with which a rank computes", &Config::threads, 1},
    {"timeout", "S", "seconds that a rank waits for the others", &Config::timeout_s, 0, true},
    {"max-failures", "N",
     "start the ranks again, from the newest checkpoint, after up to N failures; -1: after any "
     "number",
     &Config::max_failures, -1},
    {"give-up-after", "N",
     "end the run, despite --max-failures, after N failures of one kind in a row, of one rank at "
     "one step, with no newer checkpoint in between",
     &Config::give_up_after, 1},
    {"grace", "S", "seconds for a run to save a checkpoint and end after SIGTERM, USR1 or USR2",
     &Config::grace_s, 0, true},
    {"storage", "DIR", "where runs are kept", &Config::storage},
    {"name", "RUN", "the run's folder in the storage; default: model, strategy and time",
     &Config::name},
    {"fresh", "", "start over a run of that name", &Config::fresh},
    {"anyway", "", "start even if the plan says that it does not fit", &Config::anyway},
    {"checkpoint-every", "auto|epoch|none|STEPS",
     "when to save a checkpoint in RUN/checkpoints, and at the end RUN/model; auto: epoch, or none "
     "where nothing real is learned (synthetic data, a null device, a solo rank)",
     &Config::checkpoint_every},
    {"checkpoint-async", "on|off", "write checkpoints while training goes on",
     &Config::checkpoint_async},
    {"keep", "N", "checkpoints to keep, always with the latest; 0: all", &Config::keep},
    {"keep-by", "newest|accuracy|loss",
     "which to keep besides the latest: the newest, or those of the best test accuracy or train "
     "loss",
     &Config::keep_by},
    {"profile", "off|on|FIRST:LAST",
     "record where every byte goes, one file per rank in RUN/profiles; FIRST:LAST: only in these "
     "steps, counted from 1",
     &Config::profile},
    {"profile-dir", "DIR",
     "record into this folder on each host, such as a local disk, and collect the files in "
     "RUN/profiles when the ranks have ended, even if they failed",
     &Config::profile_dir},
    {"log-every", "N", "steps between two lines of metrics.jsonl", &Config::log_every, 1},
};

[[noreturn]] void refuse(const Option& option, std::string_view text, std::string_view why) {
  throw std::invalid_argument(fmt::format("--{} {}: {}; give --{} {}", option.name, shown(text),
                                          why, option.name, option.value));
}

template <class Number>
Number parse_number(const Option& option, std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::result_out_of_range) refuse(option, text, "the number is too large");
  if (error != std::errc{} || end != text.data() + text.size()) {
    refuse(option, text, std::is_integral_v<Number> ? "not a whole number" : "not a number");
  }
  const auto value = static_cast<double>(number);
  if (!std::isfinite(value)) refuse(option, text, "not a finite number");
  if (value < option.minimum) refuse(option, text, fmt::format("less than {}", option.minimum));
  if (option.exclusive && value == option.minimum) {
    refuse(option, text, fmt::format("must be above {}", option.minimum));
  }
  return number;
}

// Each function sets a value of its type from its text. Throws std::invalid_argument.

template <ClosedChoice Choice>
void set_value(const Option& option, std::string_view text, Choice& value) {
  const auto choice = choice_named<Choice>(text);
  if (!choice) refuse(option, text, "not a valid value");
  value = *choice;
}

void set_value(const Option& option, std::string_view text, bool& value) {
  if (text != "true" && text != "false") {
    throw std::invalid_argument(fmt::format("--{} {}: give true or false", option.name, text));
  }
  value = text == "true";
}

void set_value(const Option& option, std::string_view text, int64_t& value) {
  value = parse_number<int64_t>(option, text);
}

void set_value(const Option& option, std::string_view text, double& value) {
  value = parse_number<double>(option, text);
}

void set_value(const Option&, std::string_view text, std::string& value) { value = text; }

void set_value(const Option&, std::string_view text, DeviceChoice& value) {
  value = device_named(text);
}

void set_value(const Option&, std::string_view text, ReshardChoice& value) {
  value = reshard_named(text);
}

void set_value(const Option&, std::string_view text, Recompute& value) {
  value = recompute_named(text);
}

template <class Value>
std::string text_of_value(const Value& value) {
  if constexpr (std::is_arithmetic_v<Value> || std::is_same_v<Value, std::string>) {
    return fmt::format("{}", value);
  } else if constexpr (ClosedChoice<Value>) {
    return std::string(to_string(value));
  } else {
    return text_of(value);
  }
}

/// Returns what config.json holds for a value: numbers and booleans as they are, everything else as
/// text.
template <class Value>
nlohmann::ordered_json json_of(const Value& value) {
  if constexpr (std::is_arithmetic_v<Value>) {
    return value;
  } else {
    return text_of_value(value);
  }
}

std::string key_of(const Option& option) {
  std::string key(option.name);
  std::replace(key.begin(), key.end(), '-', '_');
  return key;
}

/// Returns the text of a JSON value, which then passes the same checks as the command line's text.
std::string plain_text_of(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number() || value.is_boolean()) return value.dump();
  throw std::invalid_argument("not a string, number or boolean");
}

const Option& find_option(const std::string& key, const std::string& file) {
  for (const Option& option : kOptions) {
    if (key_of(option) == key) return option;
  }
  throw std::invalid_argument(fmt::format(
      "{}: unknown key \"{}\"; the keys are the flags of train with _ for -", file, shown(key)));
}

/// Sets strategy and reshard mode from FSDP1's name of a sharding strategy. Returns false for any
/// other text.
bool set_fsdp1_name(Config& config, std::string_view text) {
  struct Alias {
    std::string_view name;
    StrategyKind strategy;
    Reshard reshard;
  };
  constexpr Alias kAliases[] = {{"FULL_SHARD", StrategyKind::fsdp, Reshard::yes},
                                {"SHARD_GRAD_OP", StrategyKind::fsdp, Reshard::no},
                                {"NO_SHARD", StrategyKind::ddp, Reshard::automatic},
                                {"HYBRID_SHARD", StrategyKind::hsdp, Reshard::yes},
                                {"_HYBRID_SHARD_ZERO2", StrategyKind::hsdp, Reshard::no}};
  for (const Alias& alias : kAliases) {
    if (alias.name != text) continue;
    config.strategy = alias.strategy;
    config.reshard_after_forward = {.mode = alias.reshard};
    return true;
  }
  return false;
}

}  // namespace

std::span<const Option> options() { return kOptions; }

void set_option(Config& config, const Option& option, std::string_view text) {
  if (!is_utf8(text)) refuse(option, text, "not UTF-8, which configurations are written in");
  if (text.find('\0') != text.npos) refuse(option, text, "a text with a zero byte");
  if (option.name == "strategy" && set_fsdp1_name(config, text)) return;
  std::visit([&](auto field) { set_value(option, text, config.*field); }, option.field);
}

std::string text_of(const Config& config, const Option& option) {
  return std::visit([&](auto field) { return text_of_value(config.*field); }, option.field);
}

std::string to_json(const Config& config) {
  nlohmann::ordered_json json;
  for (const Option& option : kOptions) {
    std::visit([&](auto field) { json[key_of(option)] = json_of(config.*field); }, option.field);
  }
  return json.dump(2) + "\n";
}

void read_json(Config& config, std::string_view text, const std::string& file) {
  nlohmann::json json;
  try {
    json = parse_strict_json(text, kWritten);
  } catch (const std::runtime_error& error) {
    throw std::invalid_argument(fmt::format("{}: {}", shown(file), error.what()));
  }
  if (!json.is_object()) {
    throw std::invalid_argument(fmt::format("{}: not a JSON object of flags", file));
  }
  for (const auto& [key, value] : json.items()) {
    const Option& option = find_option(key, file);
    try {
      set_option(config, option, plain_text_of(value));
    } catch (const std::invalid_argument& error) {
      throw std::invalid_argument(fmt::format("{}: key \"{}\": {}", file, key, error.what()));
    }
  }
}

bool is_identity_of(const Config& config, std::string_view identity) {
  const std::string own = run_identity(config);
  if (identity == own) return true;
  auto json = find_ordered_json(identity, kWritten).value_or(nullptr);
  Config inputs;
  for (const auto& [key, field] :
       {std::pair{"model", &Config::model}, {"data", &Config::data}, {"init", &Config::init}}) {
    if (!json.is_object() || !json.contains(key) || !json[key].is_string()) return false;
    inputs.*field = json[key];
  }
  inputs = with_absolute_inputs(inputs);
  json["model"] = inputs.model;
  json["data"] = inputs.data;
  json["init"] = inputs.init;
  return json.dump() == own;
}

std::string run_identity(const Config& given) {
  const Config config = with_absolute_inputs(given);
  nlohmann::ordered_json json;
  json["model"] = config.model;
  json["data"] = config.data;
  json["init"] = config.init;
  json["seq"] = config.seq;
  json["global_batch"] = config.batch * config.accumulate * world_size_of(config);
  json["epochs"] = config.epochs;
  json["steps"] = config.steps;
  json["optimizer"] = to_string(config.optimizer);
  json["lr"] = config.lr;
  json["momentum"] = config.momentum;
  json["weight_decay"] = config.weight_decay;
  json["clip_norm"] = config.clip_norm;
  json["freeze"] = config.freeze;
  json["seed"] = config.seed;
  return json.dump();
}

}  // namespace shardlens::planner
