// The choices that options offer, each with the words by which a user names it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/choice.h"

namespace shardlens::planner {

enum class StrategyKind { single, ddp, fsdp, hsdp };
constexpr auto choice_words(StrategyKind) { return words("single", "ddp", "fsdp", "hsdp"); }

/// True if the ranks hold shards of the parameters.
constexpr bool is_sharded(StrategyKind kind) {
  return kind == StrategyKind::fsdp || kind == StrategyKind::hsdp;
}

/// Says if a group is resharded after forward. `automatic`: no for the head, whose gather in
/// backward would follow at once; yes for others. `partly`: some ranks, fewer than all shards, keep
/// a copy between them.
enum class Reshard { automatic, yes, no, partly };

/// The value of --reshard-after-forward.
struct ReshardChoice {
  Reshard mode = Reshard::automatic;
  int kept = 0;  // if partly: ranks that keep a copy between them

  bool operator==(const ReshardChoice&) const = default;
};

/// Returns the word: "auto", "true", "false" or a number of ranks.
std::string text_of(const ReshardChoice& reshard);

/// Reads the word. Throws std::invalid_argument.
ReshardChoice reshard_named(std::string_view word);

/// The value of --recompute: blocks whose index `every` divides keep only their input; 0: none.
struct Recompute {
  int every = 0;

  bool operator==(const Recompute&) const = default;
};

/// Returns the word: "none", "full" or "every:K".
std::string text_of(const Recompute& recompute);

/// Reads the word. Throws std::invalid_argument.
Recompute recompute_named(std::string_view word);

/// The state that lives in host memory from step to step: only the fp32 masters; masters and
/// moments, which the host then steps, while the device keeps its parameters in their dtype; or
/// everything.
enum class Offload { none, params, optimizer, all };
constexpr auto choice_words(Offload) { return words("none", "params", "optimizer", "all"); }

enum class OptimizerKind { adam, adamw, sgd };
constexpr auto choice_words(OptimizerKind) { return words("adam", "adamw", "sgd"); }

/// Says when a step of several microbatches reduces gradients: for each of them, or once for all.
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

/// Reads a whole number of at least 1; returns 0 for any other text.
int64_t count_named(std::string_view text);

/// Returns a count as an int. Throws std::invalid_argument, with the option's name, if it is too
/// large to be meant.
int small_count(std::string_view option, int64_t count);

}  // namespace shardlens::planner
