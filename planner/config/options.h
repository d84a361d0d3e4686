// The table of options: the one table behind the command line, config.json and the help text. The
// flag "--log-every" is the JSON key "log_every".
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "planner/config/config.h"

namespace shardlens::planner {

template <class... Types>
using FieldPointer = std::variant<Types Config::*...>;
using Field = FieldPointer<std::string, int64_t, double, bool, StrategyKind, DType, OutputDType,
                           Offload, OptimizerKind, Sync, AttentionChoice, CommunicatorChoice,
                           DeviceChoice, ReshardChoice, Recompute, Switch, KeepRule>;

struct Option {
  std::string_view name;   // "log-every"
  std::string_view value;  // stands for the value in the help: "N", "auto|true|false"
  std::string_view help;
  Field field;
  double minimum = 0;      // of a number
  bool exclusive = false;  // the number must be above the minimum
};

std::span<const Option> options();

/// Sets one option from its text. Throws std::invalid_argument: what, why, how to fix it.
void set_option(Config& config, const Option& option, std::string_view text);

/// Returns an option's value as the command line would give it: "fsdp", "true", "0.001".
std::string text_of(const Config& config, const Option& option);

/// Writes the configuration under the keys of the option table, with natural JSON types.
std::string to_json(const Config& config);

/// Sets the keys that `text` has. `file` is for messages. Throws std::invalid_argument.
void read_json(Config& config, std::string_view text, const std::string& file);

/// Returns the settings that two runs must share to be the same run: model, data, start weights,
/// tokens per sample, global batch, epochs and steps, optimizer settings, frozen parameters, seed.
/// World size, strategy and device may differ. The result is one line of JSON.
std::string run_identity(const Config& config);

/// True if `identity` is the configuration's. An older release may have written it with relative
/// paths.
bool is_identity_of(const Config& config, std::string_view identity);

}  // namespace shardlens::planner
