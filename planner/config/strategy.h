// The options of a training run: the one table behind the command line, config.json and the help
// text, and the strategy that the schedule is built from. The flag "--log-every" is the JSON key
// "log_every".
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/choice.h"
#include "base/device.h"
#include "base/dtype.h"
#include "base/step_range.h"

namespace shardlens::planner {

enum class StrategyKind { single, ddp, fsdp, hsdp };
constexpr auto choice_words(StrategyKind) { return words("single", "ddp", "fsdp", "hsdp"); }

/// True if the ranks hold shards of the parameters.
constexpr bool is_sharded(StrategyKind kind) {
  return kind == StrategyKind::fsdp || kind == StrategyKind::hsdp;
}

/// Says if a group is resharded after forward. `automatic`: no for the head, whose gather in
/// backward would follow at once; yes for others. `partly`: fewer ranks than all shards keep a copy
/// between them.
enum class Reshard { automatic, yes, no, partly };

/// The value of --reshard-after-forward.
struct ReshardChoice {
  Reshard mode = Reshard::automatic;
  int kept = 0;  // of partly: ranks that keep a copy between them

  bool operator==(const ReshardChoice&) const = default;
};

/// Returns the word: "auto", "true", "false" or a number of ranks.
std::string text_of(const ReshardChoice& reshard);
/// Reads the word. Throws std::invalid_argument.
ReshardChoice reshard_named(std::string_view word);

/// The value of --recompute: blocks whose index `every` divides keep their input alone; 0: none.
struct Recompute {
  int every = 0;

  bool operator==(const Recompute&) const = default;
};

/// Returns the word: "none", "full" or "every:K".
std::string text_of(const Recompute& recompute);
/// Reads the word. Throws std::invalid_argument.
Recompute recompute_named(std::string_view word);

/// The units that are gathered together: those of a block of the model, all of them, runs of units
/// of so many elements, or what stands in a module whose name matches.
enum class WrapKind { block, root, size, module };

struct Wrap {
  WrapKind kind = WrapKind::block;
  int64_t numel = 0;     // of size
  std::string module{};  // of module: a regular expression

  bool operator==(const Wrap&) const = default;
};

/// The state that lives in host memory from step to step: the fp32 masters alone; masters and
/// moments, which the host then steps, while the device keeps its parameters in their dtype; or
/// all.
enum class Offload { none, params, optimizer, all };
constexpr auto choice_words(Offload) { return words("none", "params", "optimizer", "all"); }

enum class OptimizerKind { adam, adamw, sgd };
constexpr auto choice_words(OptimizerKind) { return words("adam", "adamw", "sgd"); }

/// Says when several microbatches of a step reduce gradients: each its own, or once for all of
/// them.
enum class Sync { every, last };
constexpr auto choice_words(Sync) { return words("every", "last"); }

enum class CommunicatorKind { none, local, gloo, nccl };

/// The communicator that the user asks for. `automatic`: NCCL on GPUs, shared memory between ranks
/// of one host's CPU.
enum class CommunicatorChoice { automatic, local, gloo, nccl };
constexpr auto choice_words(CommunicatorChoice) { return words("auto", "local", "gloo", "nccl"); }

/// The dtype to which the model's outputs are cast. `automatic`: they stay as computed.
enum class OutputDType { automatic, fp32, bf16, fp16 };
constexpr auto choice_words(OutputDType) { return words("auto", "fp32", "bf16", "fp16"); }

/// The kernels of LibTorch that attention may take. `automatic`: any.
enum class AttentionChoice { automatic, flash, efficient, math };
constexpr auto choice_words(AttentionChoice) { return words("auto", "flash", "efficient", "math"); }

/// True if --attention allows the kernel.
constexpr bool allows(AttentionChoice choice, AttentionChoice kernel) {
  return choice == AttentionChoice::automatic || choice == kernel;
}

enum class Switch { on, off };
constexpr auto choice_words(Switch) { return words("on", "off"); }

/// The rule by which checkpoints beside the latest one are kept.
enum class KeepRule { newest, accuracy, loss };
constexpr auto choice_words(KeepRule) { return words("newest", "accuracy", "loss"); }

/// The settings that decide the order of a step and the memory of a rank.
struct Strategy {
  StrategyKind kind = StrategyKind::fsdp;
  int world_size = 1;
  Reshard reshard_after_forward = Reshard::automatic;
  DType param_dtype = DType::fp32;  // of what is gathered and computed with; masters are fp32
  CommunicatorKind communicator = CommunicatorKind::none;
  bool staged = false;  // a communicator of the CPU serves another device, through host memory
  int64_t batch = 64;   // samples a rank and microbatch

  int replicas = 1;         // hsdp: copies of the state; world_size / replicas ranks share each
  int regather_shards = 0;  // Reshard::partly: ranks that keep a copy between them
  DType reduce_dtype = DType::fp32;
  Offload offload = Offload::none;
  int forward_prefetch = 1;  // gathers that may run ahead of the compute
  int backward_prefetch = 1;
  Wrap wrap{};
  std::string ignore{};     // regular expressions for modules or parameters: whole on every rank,
  std::string freeze{};     // ... without gradient,
  std::string keep_fp32{};  // ... gathered and computed with in fp32
  int microbatches = 1;     // a step
  Sync sync = Sync::every;
  int recompute_every = 0;       // blocks whose index it divides keep their input alone; 0: none
  bool holds_gradients = false;  // no step before all gradients are known: clipping, loss scale

  /// Returns how many ranks share one copy of the state.
  int shards() const;
};

/// The settings of a run as the user gave them. strategy_of() and its neighbours read
/// what is still text, such as --wrap.
struct Config {
  std::string model = "vit-tutorial";
  std::string data = "auto";
  std::string init;
  int64_t seq = 0;  // 0: the model's own
  int64_t batch = 64;
  int64_t epochs = 1;
  int64_t steps = 0;  // 0: as many as the epochs have
  double lr = 1e-3;
  int64_t seed = 0;

  OptimizerKind optimizer = OptimizerKind::adam;
  double momentum = 0;
  double weight_decay = 0;
  double clip_norm = 0;  // 0: no clipping
  std::string loss_scale = "auto";

  StrategyKind strategy = StrategyKind::fsdp;
  int64_t replicas = 1;
  ReshardChoice reshard_after_forward{};
  DType param_dtype = DType::fp32;
  DType reduce_dtype = DType::fp32;
  OutputDType output_dtype = OutputDType::automatic;
  bool cast_inputs = true;
  Offload offload = Offload::none;
  int64_t forward_prefetch = 1;
  int64_t backward_prefetch = 1;
  std::string wrap = "block";
  std::string ignore;
  std::string freeze;
  std::string keep_fp32;
  int64_t accumulate = 1;
  Sync sync = Sync::every;
  Recompute recompute{};
  AttentionChoice attention = AttentionChoice::automatic;
  CommunicatorChoice communicator = CommunicatorChoice::automatic;
  int64_t communicators = 2;
  DeviceChoice device{};
  std::string capacity;
  int64_t workers = 1;
  int64_t world = 0;       // 0: as many ranks as workers
  int64_t solo_rank = -1;  // -1: none
  int64_t threads = 1;
  double timeout_s = 60;
  int64_t max_failures = 0;  // -1: any number
  int64_t give_up_after = 10;
  double grace_s = 30;

  std::string storage = "runs";
  std::string name;
  bool fresh = false;
  bool anyway = false;
  std::string checkpoint_every = "auto";
  Switch checkpoint_async = Switch::on;
  int64_t keep = 2;
  KeepRule keep_by = KeepRule::newest;
  std::string profile = "off";
  std::string profile_dir;  // empty: the run's
  int64_t log_every = 10;
};

template <class... Types>
using FieldPointer = std::variant<Types Config::*...>;
using Field = FieldPointer<std::string, int64_t, double, bool, StrategyKind, DType, OutputDType,
                           Offload, OptimizerKind, Sync, AttentionChoice, CommunicatorChoice,
                           DeviceChoice, ReshardChoice, Recompute, Switch, KeepRule>;

struct Option {
  std::string_view name;   // "log-every"
  std::string_view value;  // what stands for the value in the help: "N", "auto|true|false"
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

struct Arguments {
  Config config;
  std::vector<std::string> notes;  // how another program's files were read, lines to print
  bool help = false;
};

/// Parses the flags after the command's name; --config FILE is read first, and flags override it.
/// The file may be another program's (planner/config/foreign/): then it matters if a launcher has
/// started this process as one of `launched` ranks; 0: none has. Throws std::invalid_argument.
Arguments parse_arguments(const std::vector<std::string>& arguments, int64_t launched = 0);
std::string help_text(std::string_view command);

/// Returns the device that --device names. The runtime resolves `--device auto` before it asks.
/// Throws std::invalid_argument for an unknown device or GPU.
Device device_of(const Config& config);

/// Returns the strategy of a run. Throws std::invalid_argument if options contradict each other.
Strategy strategy_of(const Config& config);

/// The factor that multiplies the loss before backward, so that small gradients are not lost in
/// fp16: none, a constant, or a factor that has not overflowed lately.
struct LossScale {
  enum class Kind { none, constant, dynamic };
  Kind kind = Kind::none;
  double value = 1;

  bool operator==(const LossScale&) const = default;
};

/// Reads --loss-scale. Throws std::invalid_argument, also for fp16 parameters without a loss scale.
LossScale loss_scale_of(const Config& config);

/// Reads --capacity, in bytes; nothing where it is not given. Throws std::invalid_argument.
std::optional<int64_t> capacity_of(const Config& config);

/// Returns the dtype to which logits are cast before the loss; nothing: they stay as computed.
std::optional<DType> output_dtype_of(const Config& config);

/// The parts of a run that --profile records.
struct Recording {
  bool wanted = false;
  std::optional<StepRange> steps;  // nothing: all of the run
};

/// Reads --profile. Throws std::invalid_argument if it is none of its words and no range of steps.
Recording recording_of(const Config& config);

/// The settings of --checkpoint-every, --checkpoint-async, --keep and --keep-by.
struct Checkpointing {
  bool wanted = false;
  int64_t every_steps = 0;  // 0: once an epoch
  bool asynchronous = true;
  int64_t keep = 0;  // 0: all
  KeepRule by = KeepRule::newest;
};

/// Reads those flags. Throws std::invalid_argument if a value is none of their words, and if
/// checkpoints are asked for of a run that has no values to keep.
Checkpointing checkpointing_of(const Config& config);

/// Returns how many ranks the run has in all, those that other hosts would run included.
int64_t world_size_of(const Config& config);

/// Returns the same configuration for a process in another folder: with absolute paths for files of
/// the model, the data and the start weights. Relative paths begin at `base`; empty: at the current
/// folder of this process.
Config with_absolute_inputs(Config config, const std::filesystem::path& base = {});

/// Returns the settings that two runs must share to be the same run: model, data, start weights,
/// tokens per sample, global batch, epochs and steps, optimizer settings, frozen parameters, seed.
/// World size, strategy and device may differ. The result is one line of JSON.
std::string run_identity(const Config& config);

/// True if `identity` is the configuration's. An older release may have written it with relative
/// paths.
bool is_identity_of(const Config& config, std::string_view identity);

}  // namespace shardlens::planner
