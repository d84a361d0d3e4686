#include "profiler/record/advice/advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/shown.h"
#include "base/units.h"
#include "profiler/recording/python_rules.h"
#include "profiler/report/place_totals.h"

namespace shardlens::profiler {

namespace {

using Evidence = AdviceEvidence;

// ---- what rules ask -----------------------------------------------------------------------------

/// A mistake is worth naming from this share of the memory on.
constexpr int64_t kLeastParts = 20;
constexpr int64_t kLeastBytes = int64_t{64} << 20;
constexpr int64_t kLeastPinnedLoss = int64_t{256} << 20;

/// Returns "train.py:30" of "train.py:30 forward", or "" if the label is not a line of a program.
std::string_view place_of(std::string_view label) {
  const std::string_view place = label.substr(0, label.find(' '));
  return place.find(".py:") == std::string_view::npos ? "" : place;
}

/// Returns " at train.py:30", or nothing if no line is known.
std::string at(std::string_view line) {
  return line.empty() ? "" : fmt::format(" at {}", shown(line));
}

std::string at_use(const Evidence& e, std::string_view what) { return at(e.uses.line_of(what)); }

/// Returns the line that uses FSDP.
std::string fsdp_line(const Evidence& e) {
  return e.uses.line_of(e.uses.has("fsdp2") ? "fsdp2" : "fsdp1");
}

bool is_much(const Evidence& e, int64_t bytes) {
  return bytes >= kLeastBytes && bytes >= e.allocated_bytes() / kLeastParts;
}

/// Returns the bytes if they are worth naming, else 0.
int64_t if_much(const Evidence& e, int64_t bytes) { return is_much(e, bytes) ? bytes : 0; }

/// Returns the category's bytes if nothing else takes more. What is small beside the memory that is
/// reserved and free does not matter.
int64_t if_largest(const Evidence& e, Category category) {
  const int64_t bytes = e.bytes_of(category);
  return e.largest_category() == category && bytes >= e.reserved_bytes / kLeastParts ? bytes : 0;
}

/// Returns what each step replaces: memory that only the step before has made.
const KeptPlace* of_last_step(const Evidence& e) {
  const auto found =
      std::ranges::find_if(e.kept, [](const KeptPlace& place) { return place.oldest_steps == 1; });
  return found == e.kept.end() ? nullptr : &*found;
}

bool grows(const Evidence& e) { return e.growth.has_value(); }

/// Returns true if memory peaked, or ran out, in an evaluation that keeps what backward needs.
bool evaluates_with_graph(const Evidence& e) {
  if (!e.uses.has("evaluation_with_grad")) return false;
  return e.is_in_doubt ? e.uses.evaluates_at_end
                       : e.uses.evaluation_peak_bytes == e.allocated_bytes();
}

bool autocast_undoes_sharding(const Evidence& e) {
  return e.uses.has("autocast") && e.uses.has_fsdp() && !e.uses.has("fsdp2_param_dtype") &&
         !e.uses.has("fsdp1_param_dtype") && !e.uses.has("fsdp1_no_shard") &&
         !e.uses.has("recompute") && is_much(e, e.bytes_of(Category::parameter_copy));
}

/// Returns the vocabulary that an activation's size is a multiple of, or 0. Powers of two are not
/// asked: every tensor may be a multiple of them.
int64_t vocabulary_of(const Evidence& e, const NamedAllocation& block) {
  if (block.category != Category::activation) return 0;
  const auto found = std::ranges::find_if(e.uses.vocabularies, [&](int64_t size) {
    const bool tells = (size & (size - 1)) != 0 && size % 3 + size % 5 + size % 7 != 0;
    return tells && block.asked_bytes % size == 0 && block.asked_bytes / size >= 32;
  });
  return found == e.uses.vocabularies.end() ? 0 : *found;
}

using IsBlock = bool (*)(const Evidence&, const NamedAllocation&);

/// Returns the largest block of a kind; null if there is none.
const NamedAllocation* largest_block(const Evidence& e, IsBlock is_it) {
  const auto found =
      std::ranges::find_if(e.blocks, [&](const NamedAllocation& block) { return is_it(e, block); });
  return found == e.blocks.end() ? nullptr : &*found;
}

/// Returns the bytes of all blocks of a kind.
int64_t bytes_of_blocks(const Evidence& e, IsBlock is_it) {
  int64_t bytes = 0;
  for (const NamedAllocation& block : e.blocks) bytes += is_it(e, block) ? block.given_bytes : 0;
  return bytes;
}

/// True for an activation whose size depends on the vocabulary.
bool is_of_logits(const Evidence& e, const NamedAllocation& block) {
  return vocabulary_of(e, block) != 0;
}

bool are_logits_most(const Evidence& e) {
  return 2 * bytes_of_blocks(e, is_of_logits) > e.bytes_of(Category::activation);
}

/// Returns the line that made the most memory of a category, in a program that makes it in lines.
std::string line_of_most(const Evidence& e, Category category) {
  for (const PlaceTotal& row : place_totals(e.blocks)) {
    if (row.category == category && !place_of(row.label).empty())
      return std::string(place_of(row.label));
  }
  return {};
}

/// True for what a softmax keeps for backward, unless it is one over the vocabulary.
bool is_of_softmax(const Evidence& e, const NamedAllocation& block) {
  return block.category == Category::activation && block.operation.ends_with("_softmax") &&
         !is_of_logits(e, block);
}

/// Returns the row of the largest checkpoint that is loaded and on the GPU.
std::optional<PlaceTotal> largest_checkpoint(const Evidence& e) {
  const std::vector<PlaceTotal> rows = place_totals(e.blocks);
  const auto found = std::ranges::find_if(rows, [](const PlaceTotal& row) {
    return row.category == Category::checkpoint_staging &&
           std::ranges::find(row.names, kLoadedCheckpoint) != row.names.end();
  });
  return found == rows.end() ? std::nullopt : std::optional(*found);
}

/// True for the largest gradient that no optimizer uses.
bool is_largest_unstepped(const Evidence& e, const NamedAllocation& block) {
  return block.category == Category::gradient && block.name == e.uses.largest_unstepped;
}

/// Returns how much less a program may take whose parameters are never whole: at most what other
/// ranks hold, and what is reserved beyond what the steps allocate.
int64_t saved_by_early_sharding(const Evidence& e) {
  const int64_t whole = if_largest(e, Category::parameter_shard);
  const int64_t of_others = whole - whole / e.world_size;
  if (!e.steps_peak_bytes) return of_others;
  return if_much(e, std::min(of_others, e.reserved_bytes - *e.steps_peak_bytes));
}

/// Returns the bytes that are whole while FSDP has gathered a unit, if nothing else takes more: its
/// parameters, then its gradients and their copy for the reduction.
int64_t gathered_bytes(const Evidence& e) {
  const int64_t bytes = e.bytes_of(Category::unsharded_parameter) + e.bytes_of(Category::gradient) +
                        e.bytes_of(Category::reduce_buffer);
  return bytes >= e.bytes_of(e.largest_category()) ? bytes : 0;
}

/// Returns the bytes of parameters' gradients if they are an eighth or more: with Adam they are a
/// fourth in one precision, and a sixth or more in two. Those of activations have no name.
int64_t gradients_if_much(const Evidence& e) {
  int64_t bytes = 0;
  for (const NamedAllocation& block : e.blocks) {
    if (block.category == Category::gradient && !block.name.empty()) bytes += block.given_bytes;
  }
  return 8 * bytes >= e.allocated_bytes() ? if_much(e, bytes) : 0;
}

/// Returns true if the program reads all gradients before it steps, so that none can go earlier.
bool needs_all_gradients(const Evidence& e) {
  return e.uses.accumulates || e.uses.has("clip_gradients") || e.uses.has("grad_scaler");
}

/// Returns what pools of CUDA graphs hold without use, if that is much of what is reserved.
int64_t unused_in_pools(const Evidence& e) {
  const int64_t unused = e.unused ? e.unused->private_pools : 0;
  const bool has_pools = e.uses.cuda_graph_pools + e.uses.graphed_callable_pools > 1;
  return has_pools && 10 * unused > e.reserved_bytes ? if_much(e, unused) : 0;
}

const UsedOptimizer* adam(const Evidence& e) {
  const auto found = std::ranges::find_if(e.uses.optimizers, [](const UsedOptimizer& one) {
    return one.name.find("Adam") != std::string::npos;
  });
  return found == e.uses.optimizers.end() ? nullptr : &*found;
}

/// Returns what the ranks hold whole although each could hold a part.
int64_t state_bytes(const Evidence& e) {
  return e.bytes_of(Category::parameter_shard) + e.bytes_of(Category::optimizer_state) +
         e.bytes_of(Category::gradient) + e.bytes_of(Category::gradient_shard);
}

bool is_state_largest(const Evidence& e) {
  const Category largest = e.largest_category();
  return largest == Category::parameter_shard || largest == Category::optimizer_state ||
         largest == Category::gradient || largest == Category::gradient_shard;
}

bool is_version_at_least(const std::string& version, int minor) {
  int first = 0, second = 0;
  return std::sscanf(version.c_str(), "%d.%d", &first, &second) == 2 &&
         (first > 2 || (first == 2 && second >= minor));
}

// ---- the rules ----------------------------------------------------------------------------------

struct Rule {
  std::string_view name;
  /// True for a mistake: it is named even if there is room, since its change costs little.
  bool is_mistake = false;
  /// Returns the bytes that it is about; 0 if the evidence is missing.
  int64_t (*bytes)(const Evidence&);
  /// True if the program does it already, or if something else is the matter.
  bool (*is_ruled_out)(const Evidence&);
  std::string (*words)(const Evidence&, const std::string& bytes);
};

bool never(const Evidence&) { return false; }

constexpr auto kRules = std::to_array<Rule>({
    {"growth", true,
     [](const Evidence& e) {
       return e.growth ? std::max<int64_t>(1, std::llround(e.growth->bytes_per_step)) : 0;
     },
     never,
     [](const Evidence& e, const std::string& bytes) {
       const GrowingPlace& most = e.growth->places.front();
       const char* const unit = e.growth->round.empty() ? "step" : "round";
       if (most.is_replaced) {
         return fmt::format("each {} makes what is made{} larger, by {} in all: limit its length",
                            unit, at(most.label), bytes);
       }
       const std::string kept_by = most.caller.empty() ? "" : ", kept" + at(most.caller);
       return fmt::format(
           "each {} leaves {} made{}{}: delete it, or keep its .item() or, if it has a graph, its "
           ".detach()",
           unit, bytes, at(most.label), kept_by);
     }},
    {"kept_from_last_step", true,
     [](const Evidence& e) {
       return of_last_step(e) == nullptr ? 0 : if_much(e, of_last_step(e)->given_bytes);
     },
     [](const Evidence& e) { return grows(e); },
     [](const Evidence& e, const std::string& bytes) {
       return fmt::format(
           "{} made{} in the step before are alive still: del the variable that holds them before "
           "the next step",
           bytes, at(of_last_step(e)->label));
     }},
    {"loaded_checkpoint", true,
     [](const Evidence& e) {
       const auto checkpoint = largest_checkpoint(e);
       return checkpoint ? if_much(e, checkpoint->given_bytes) : 0;
     },
     [](const Evidence& e) { return !e.uses.has("load_state_dict"); },
     [](const Evidence& e, const std::string& bytes) {
       return fmt::format(
           "{} of a checkpoint that is loaded{} are on the GPU beside the model: load it to the "
           "CPU, or delete it after load_state_dict{}",
           bytes, at(place_of(largest_checkpoint(e)->label)), at_use(e, "load_state_dict"));
     }},
    {"unused_gradients", true,
     [](const Evidence& e) { return if_much(e, e.uses.unstepped_gradient_bytes); }, grows,
     [](const Evidence& e, const std::string& bytes) {
       const NamedAllocation* const largest = largest_block(e, is_largest_unstepped);
       return fmt::format(
           "{} are gradients of {} parameters that no optimizer has, such as {}: "
           "requires_grad_(False) "
           "on these, or torch.no_grad() around their forward{}, if you do not use them",
           bytes, e.uses.unstepped_gradients, shown(e.uses.largest_unstepped),
           at(largest == nullptr ? "" : place_of(largest->label)));
     }},
    {"evaluation_without_no_grad", true,
     [](const Evidence& e) {
       return evaluates_with_graph(e) ? if_much(e, e.bytes_of(Category::activation)) : 0;
     },
     never,
     [](const Evidence& e, const std::string& bytes) {
       return fmt::format(
           "{} of activations are kept for a backward that does not come, in evaluation after "
           ".eval(){}: with torch.no_grad() around it they are dropped",
           bytes, at_use(e, "evaluation_with_grad"));
     }},
    {"deferred_reduction", true,
     [](const Evidence& e) { return if_much(e, e.bytes_of(Category::gradient)); },
     [](const Evidence& e) {
       return !e.uses.has("fsdp2_deferred_sync") && !e.uses.has("fsdp1_deferred_sync");
     },
     [](const Evidence& e, const std::string& bytes) {
       const bool is_fsdp2 = e.uses.has("fsdp2_deferred_sync");
       return fmt::format(
           "{} of whole gradients are kept because {}{} defers their reduction: without it each "
           "rank keeps its shard only, for a reduce-scatter in each microbatch",
           bytes, is_fsdp2 ? "set_requires_gradient_sync(False)" : "no_sync()",
           at_use(e, is_fsdp2 ? "fsdp2_deferred_sync" : "fsdp1_deferred_sync"));
     }},
    {"autocast_in_fsdp", true,
     [](const Evidence& e) { return e.bytes_of(Category::parameter_copy); },
     [](const Evidence& e) { return !autocast_undoes_sharding(e) || grows(e); },
     [](const Evidence& e, const std::string& bytes) {
       const bool is_fsdp2 = e.uses.has("fsdp2");
       return fmt::format(
           "{} of copies of weights: torch.autocast{} casts gathered weights and keeps the copies "
           "for backward, which undoes FSDP; {}{} casts shards instead",
           bytes, at_use(e, "autocast"),
           is_fsdp2 ? "fully_shard(..., mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))"
                    : "FSDP(..., mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))",
           at(fsdp_line(e)));
     }},
    {"shared_graph_pool", true, unused_in_pools,
     [](const Evidence& e) {
       return e.uses.cuda_graph_pools < 2 || e.uses.graphed_callable_pools > 1;
     },
     [](const Evidence& e, const std::string& bytes) {
       return fmt::format(
           "{} are reserved but unused while {} CUDA graphs captured{} have {} pools: if no two "
           "run "
           "at once, pass all the same pool=torch.cuda.graph_pool_handle() (and the same stream)",
           bytes, e.uses.cuda_graphs, at_use(e, "cuda_graphs"), e.uses.cuda_graph_pools);
     }},
    {"fewer_graphed_callables", true, unused_in_pools,
     [](const Evidence& e) { return e.uses.graphed_callable_pools < 2; },
     [](const Evidence& e, const std::string& bytes) {
       return fmt::format(
           "{} are reserved but unused while {} calls of make_graphed_callables{} have a pool "
           "each, "
           "which no other can use: graph fewer shapes, and pad inputs to them",
           bytes, e.uses.graphed_callable_pools, at_use(e, "graphed_callables"));
     }},
    {"pinned_rounding", true,
     [](const Evidence& e) {
       if (!e.pinned) return int64_t{0};
       const int64_t lost = e.pinned->used_bytes - e.pinned->asked_bytes;
       return lost >= kLeastPinnedLoss && 5 * lost >= e.pinned->used_bytes ? lost : 0;
     },
     never,
     [](const Evidence& e, const std::string& bytes) {
       return fmt::format(
           "{} of the host's memory are lost in pinned memory, which PyTorch rounds up to powers "
           "of "
           "two: {}",
           bytes,
           is_version_at_least(e.pytorch, 15)
               ? "PYTORCH_CUDA_ALLOC_CONF=pinned_max_round_threshold_mb:1 rounds small ones only"
               : "pin one tensor of a power of two, and take views");
     }},

    // ---- from here on: what trades time for memory, if the GPU is full ----
    {"meta_init", false,
     [](const Evidence& e) { return e.is_before_steps ? saved_by_early_sharding(e) : 0; },
     [](const Evidence& e) {
       return (!e.uses.has_fsdp() && !e.uses.names_fsdp) || e.uses.has("fsdp2_offload");
     },
     [](const Evidence& e, const std::string& bytes) {
       return fmt::format(
           "{} of whole parameters are on the GPU before they are sharded{}: make the model under "
           "torch.device(\"meta\"), shard it, then model.to_empty(device=\"cuda\"){}",
           bytes_text(e.bytes_of(Category::parameter_shard)), at(fsdp_line(e)),
           e.steps_peak_bytes ? ", for up to " + bytes + " less" : "");
     }},
    {"fsdp_units", false, gathered_bytes,
     [](const Evidence& e) {
       return !e.uses.has_fsdp() || e.uses.fsdp_units > 1 || e.is_before_steps;
     },
     [](const Evidence& e, const std::string& bytes) {
       return fmt::format(
           "{} of parameters or gradients are whole at once, since the whole model is one unit: "
           "{} on each layer before the model{}",
           bytes, e.uses.has("fsdp2") ? "call fully_shard" : "wrap with FSDP (auto_wrap_policy)",
           at(fsdp_line(e)));
     }},
    {"reshard_after_forward", false,
     [](const Evidence& e) { return if_largest(e, Category::unsharded_parameter); },
     [](const Evidence& e) {
       return (!e.uses.has("fsdp2_no_reshard") && !e.uses.has("fsdp1_no_reshard")) ||
              e.uses.fsdp_units < 2;
     },
     [](const Evidence& e, const std::string& bytes) {
       const bool is_fsdp2 = e.uses.has("fsdp2_no_reshard");
       return fmt::format(
           "{} of gathered parameters stay until backward: {} frees them, for a second gather",
           bytes,
           is_fsdp2 ? "reshard_after_forward=True" + at_use(e, "fsdp2_no_reshard")
                    : "ShardingStrategy.FULL_SHARD" + at_use(e, "fsdp1_no_reshard"));
     }},
    {"shard_over_ranks", false,
     [](const Evidence& e) { return is_state_largest(e) ? state_bytes(e) : 0; },
     [](const Evidence& e) {
       const bool may_come = e.is_before_steps && !e.uses.has("ddp");
       return e.world_size < 2 || e.uses.is_sharded() || e.uses.has("fsdp1") || may_come ||
              grows(e);
     },
     [](const Evidence& e, const std::string& bytes) {
       const std::string how = e.uses.has("ddp")
                                   ? "in place of DistributedDataParallel" + at_use(e, "ddp")
                                   : "on each layer and the model";
       return fmt::format(
           "{} of parameters, gradients and optimizer state are whole on each rank: fully_shard {} "
           "leaves about 1/{} of these",
           bytes, how, e.world_size);
     }},
    {"offload_state", false,
     [](const Evidence& e) {
       return e.largest_category() == Category::gradient || !is_state_largest(e) ? 0
                                                                                 : state_bytes(e);
     },
     [](const Evidence& e) {
       return !e.uses.has_fsdp() || e.uses.has("fsdp1_no_shard") || e.uses.has("fsdp2_offload") ||
              e.uses.has("fsdp1_offload") || e.is_before_steps || grows(e);
     },
     [](const Evidence& e, const std::string& bytes) {
       return fmt::format("{} of shards: more ranks, or {}{}, which keeps them on the host", bytes,
                          e.uses.has("fsdp2")
                              ? "fully_shard(..., offload_policy=CPUOffloadPolicy())"
                              : "FSDP(..., cpu_offload=CPUOffload(True))",
                          at(fsdp_line(e)));
     }},
    {"small_optimizer_state", false,
     [](const Evidence& e) { return if_largest(e, Category::optimizer_state); },
     [](const Evidence& e) {
       return adam(e) == nullptr || adam(e)->has_low_bits || e.uses.has("zero") || grows(e);
     },
     [](const Evidence& e, const std::string& bytes) {
       return fmt::format(
           "{} of optimizer state: an optimizer with less state than {}{}, such as "
           "bitsandbytes.optim.AdamW8bit",
           bytes, shown(adam(e)->name), at(adam(e)->line));
     }},
    {"step_in_backward", false, gradients_if_much,
     [](const Evidence& e) {
       return e.world_size > 1 || e.uses.optimizers.size() != 1 || needs_all_gradients(e) ||
              grows(e) || are_logits_most(e);
     },
     [](const Evidence& e, const std::string& bytes) {
       return fmt::format(
           "{} of gradients: step each parameter in backward and free its gradient "
           "(register_post_accumulate_grad_hook, with an optimizer for each parameter) in place of "
           "the optimizer{}",
           bytes, at(e.uses.optimizers.front().line));
     }},
    {"bucket_view", false,
     [](const Evidence& e) {
       return std::min(e.bytes_of(Category::gradient), e.bytes_of(Category::reduce_buffer));
     },
     [](const Evidence& e) { return !e.uses.has("ddp") || e.uses.has("ddp_bucket_view"); },
     [](const Evidence& e, const std::string& bytes) {
       return fmt::format(
           "{} of gradients are also in DistributedDataParallel's buckets: "
           "gradient_as_bucket_view=True{} keeps them once",
           bytes, at_use(e, "ddp"));
     }},
    {"chunked_loss", false,
     [](const Evidence& e) {
       return are_logits_most(e) ? if_much(e, bytes_of_blocks(e, is_of_logits)) : 0;
     },
     [](const Evidence& e) {
       return grows(e) || evaluates_with_graph(e) || autocast_undoes_sharding(e);
     },
     [](const Evidence& e, const std::string& bytes) {
       return fmt::format(
           "{} grow with the vocabulary of {}, most{}: {}", bytes,
           vocabulary_of(e, *largest_block(e, is_of_logits)),
           at(place_of(largest_block(e, is_of_logits)->label)),
           is_version_at_least(e.pytorch, 15)
               ? "torch.nn.functional.linear_cross_entropy computes head and loss in chunks"
               : "compute head and loss for some of the tokens at a time, under "
                 "torch.utils.checkpoint.checkpoint");
     }},
    {"fused_attention", false,
     [](const Evidence& e) { return if_much(e, bytes_of_blocks(e, is_of_softmax)); },
     [](const Evidence& e) { return grows(e) || evaluates_with_graph(e) || e.is_before_steps; },
     [](const Evidence& e, const std::string& bytes) {
       return fmt::format(
           "{} of results of softmax, most made{}, are kept for backward: if they are attention "
           "scores, torch.nn.functional.scaled_dot_product_attention keeps none",
           bytes, at(place_of(largest_block(e, is_of_softmax)->label)));
     }},
    {"recompute", false, [](const Evidence& e) { return if_largest(e, Category::activation); },
     [](const Evidence& e) {
       return e.uses.has("recompute") || !e.uses.has("backward") || grows(e) ||
              evaluates_with_graph(e) || autocast_undoes_sharding(e) || are_logits_most(e) ||
              e.is_before_steps;
     },
     [](const Evidence& e, const std::string& bytes) {
       return fmt::format(
           "{} of activations, most made{}: torch.utils.checkpoint.checkpoint(block, x, "
           "use_reentrant=False) around each block drops them until backward; or a smaller batch "
           "or "
           "shorter sequences",
           bytes, at(line_of_most(e, Category::activation)));
     }},
    {"smaller_batch", false,
     [](const Evidence& e) {
       return std::max(if_largest(e, Category::activation), if_largest(e, Category::input));
     },
     [](const Evidence& e) {
       const bool recompute_is_left = e.largest_category() == Category::activation &&
                                      !e.uses.has("recompute") && e.uses.has("backward");
       return recompute_is_left || grows(e) || evaluates_with_graph(e) ||
              autocast_undoes_sharding(e) || are_logits_most(e) || e.is_before_steps;
     },
     [](const Evidence& e, const std::string& bytes) {
       return fmt::format(
           "{} of {}, most made{}, grow with the batch: a smaller one, or shorter "
           "sequences",
           bytes, e.largest_category() == Category::input ? "inputs" : "activations",
           at(line_of_most(e, e.largest_category())));
     }},
    {"smaller_buckets", false,
     [](const Evidence& e) {
       return std::max(if_largest(e, Category::reduce_buffer),
                       if_largest(e, Category::communication));
     },
     [](const Evidence& e) { return e.world_size < 2 || !e.uses.has("ddp"); },
     [](const Evidence& e, const std::string& bytes) {
       return fmt::format(
           "{} of buffers for collectives: a smaller bucket_cap_mb of DistributedDataParallel{}",
           bytes, at_use(e, "ddp"));
     }},
    {"other_streams", false,
     [](const Evidence& e) {
       if (!e.is_in_doubt || !e.unused) return int64_t{0};
       const int64_t unused = e.unused->other_streams;
       return 2 * unused >= e.unused->sum() ? if_much(e, unused) : 0;
     },
     [](const Evidence& e) { return e.uses.has_fsdp() || e.uses.has("ddp"); },  // they have streams
     [](const Evidence&, const std::string& bytes) {
       return fmt::format(
           "{} were freed on another stream, which alone can use them again: allocate these "
           "tensors outside torch.cuda.stream(side), and call record_stream(side) on them",
           bytes);
     }},
    {"expandable_segments", false,
     [](const Evidence& e) {
       const int64_t unused = e.unused ? e.unused->fragments : 0;
       return e.is_in_doubt && unused >= e.asked_bytes ? if_much(e, unused) : 0;
     },
     [](const Evidence& e) {
       const bool is_elsewhere = e.unused && 2 * e.unused->fragments < e.unused->sum();
       return e.uses.has_expandable_segments || is_elsewhere;
     },
     [](const Evidence&, const std::string& bytes) {
       return fmt::format(
           "{} were reserved but unused, in pieces that are too small: "
           "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True may reserve less",
           bytes);
     }},
});

/// Returns what a rule says; nothing if it is silent.
std::optional<Advice> advice_of(const Rule& rule, const Evidence& evidence) {
  if (!rule.is_mistake && !evidence.is_short) return std::nullopt;
  const int64_t bytes = rule.bytes(evidence);
  if (bytes <= 0 || rule.is_ruled_out(evidence)) return std::nullopt;
  return Advice{.rule = std::string(rule.name),
                .text = rule.words(evidence, bytes_text(bytes)),
                .bytes = bytes};
}

}  // namespace

std::vector<Advice> advice_for(const AdviceEvidence& evidence) {
  std::vector<Advice> all;
  if (!evidence.uses.is_known) return all;
  for (const Rule& rule : kRules) {
    if (auto advice = advice_of(rule, evidence)) all.push_back(*std::move(advice));
  }
  return all;
}

void keep_advice(const std::string& recording, const std::vector<Advice>& advice) {
  nlohmann::json all = nlohmann::json::array();
  for (const Advice& one : advice) {
    all.push_back({{"rule", one.rule}, {"bytes", one.bytes}, {"text", one.text}});
  }
  keep_fact(recording, "advice", all);
}

std::vector<std::string> advice_rules() {
  std::vector<std::string> names;
  for (const Rule& rule : kRules) names.emplace_back(rule.name);
  return names;
}

}  // namespace shardlens::profiler
