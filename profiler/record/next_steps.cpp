#include "profiler/record/next_steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "base/units.h"

namespace shardlens::profiler {

namespace {

struct Remedy {
  Category category{};
  std::string_view words;    // that name the category in a sentence
  std::string_view options;  // that take less memory of this category
};

constexpr std::array kRemedies = {
    Remedy{Category::activation, "activations",
           "activation checkpointing, a smaller batch or shorter sequences"},
    Remedy{Category::optimizer_state, "optimizer state",
           "sharding it over ranks (FSDP, ZeRO), offload to the host, or an optimizer with "
           "less state"},
    Remedy{Category::parameter_shard, "parameters",
           "sharding them over more ranks (FSDP), offload to the host, or a smaller dtype"},
    Remedy{Category::unsharded_parameter, "gathered parameters",
           "gathering fewer at once: fully_shard on each layer, with reshard_after_forward"},
    Remedy{Category::gradient, "gradients",
           "sharding them over ranks (FSDP, ZeRO), or stepping the optimizer in backward, which "
           "frees each at once"},
    Remedy{Category::gradient_shard, "gradients",
           "sharding them over more ranks, or offload to the host"},
    Remedy{Category::reduce_buffer, "buffers for reductions", "smaller units or buckets"},
    Remedy{Category::communication, "buffers for collectives", "smaller units or buckets"},
    Remedy{Category::input, "inputs", "a smaller batch"},
    Remedy{Category::workspace, "operator workspaces", "a smaller batch"}};

const Remedy* remedy_of(Category category) {
  const auto found = std::ranges::find(kRemedies, category, &Remedy::category);
  return found == kRemedies.end() ? nullptr : &*found;
}

/// True if whole parameters may have been on the GPU before they were sharded.
bool is_before_sharding(const RankReport& report, Category largest) {
  return largest == Category::parameter_shard && report.header.world_size > 1 &&
         report.main_space()->peak_at.phase == Phase::starting;
}

/// Names the largest use of memory: at the failure if memory ran out, else at the peak.
std::string largest_use_text(const RankReport& report, const RecordVerdict& verdict) {
  if (!verdict.is_out_of_memory && report.main_space() == nullptr) return {};
  const CategoryBytes& given =
      verdict.is_out_of_memory ? report.out_of_memory.back().given : report.main_space()->given;
  const auto largest = std::ranges::max_element(given);
  const auto category = static_cast<Category>(largest - given.begin());
  const Remedy* const remedy = remedy_of(category);
  if (*largest == 0 || remedy == nullptr) return {};
  if (!verdict.is_out_of_memory && is_before_sharding(report, category)) {
    return fmt::format(
        "the largest part is parameters, {}, before the first step: making the model on the meta "
        "device and sharding it before it moves to the GPU may take less",
        bytes_text(*largest));
  }
  return fmt::format("the largest part is {}, {}: {} may take less", remedy->words,
                     bytes_text(*largest), remedy->options);
}

/// Returns what may take less of reserved and free memory: it depends on why most is of no use.
std::string_view remedy_of(const ReservedParts& parts) {
  constexpr std::string_view kExpandable =
      "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True may reserve less";
  const int64_t joinable = parts.held.bytes + parts.whole.bytes;
  if (parts.private_pools.bytes > std::max(parts.other_streams.bytes, joinable)) {
    return parts.pools.size() > 1
               ? "most of what is free lies in private pools, where CUDA graphs use it as they "
                 "replay: one pool for all graphs, or fewer captured shapes, may reserve less"
               : "most of what is free lies in a private pool, where CUDA graphs use it as they "
                 "replay: fewer captured shapes may reserve less";
  }
  if (parts.other_streams.bytes > joinable) {
    return "most of what is free belongs to other streams: allocating on one stream may reserve "
           "less";
  }
  return kExpandable;
}

/// Describes memory that the allocator reserved but could not hand out, if that is the problem.
std::string fragments_text(const RankReport& report, const RecordVerdict& verdict) {
  if (verdict.is_out_of_memory) {
    const OutOfMemory& last = report.out_of_memory.back();
    const int64_t unused = last.blocks.reserved - last.blocks.allocated();
    if (unused < last.asked_bytes) return {};
    return fmt::format("{} were reserved but unused, in pieces that are too small: {}",
                       bytes_text(unused), remedy_of(last.reserved.parts));
  }
  if (verdict.exit_code != kFitsWithRetries || !report.reserved_peak) return {};
  return fmt::format("up to {} are reserved for up to {} allocated: {}",
                     bytes_text(report.reserved_peak_bytes().value_or(0)),
                     bytes_text(report.peak_bytes()), remedy_of(report.reserved_peak->parts));
}

bool is_short(const RecordVerdict& verdict) {
  return verdict.is_nearly_full || verdict.exit_code == kDoesNotFit ||
         verdict.exit_code == kFitsWithRetries;
}

/// True if a gate would compare this recording with another one.
bool is_comparable(const RecordVerdict& verdict) {
  return verdict.exit_code != kNotRecorded && !verdict.is_out_of_memory;
}

}  // namespace

std::vector<std::string> ways_to_take_less(const RankReport& report, const RecordVerdict& verdict) {
  if (!is_short(verdict)) return {};
  std::vector<std::string> ways = {largest_use_text(report, verdict),
                                   fragments_text(report, verdict)};
  std::erase(ways, "");
  return ways;
}

std::string next_steps(const std::string& out, const std::vector<RankReport>& reports,
                       const std::vector<RecordVerdict>& verdicts) {
  std::string text = "\nnext\n";
  // Ranks are mostly alike: the first that is short of memory stands for the others.
  const auto shortest = std::ranges::find_if(verdicts, is_short);
  if (shortest != verdicts.end()) {
    const auto& report = reports[static_cast<size_t>(shortest - verdicts.begin())];
    for (const std::string& way : ways_to_take_less(report, *shortest)) text += "  " + way + "\n";
  }
  text += fmt::format("  shardlens view {}: see in a window what was alive at any moment\n", out);
  if (!std::ranges::all_of(verdicts, is_comparable)) return text;
  return text + fmt::format(
                    "  shardlens gate {} AFTER --fail-above 2%: check whether a later recording, "
                    "AFTER, takes more\n",
                    out);
}

}  // namespace shardlens::profiler
