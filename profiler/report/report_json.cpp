#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/strict_json.h"
#include "profiler/program/pulled_levers.h"
#include "profiler/recording/events.h"
#include "profiler/report/block_names.h"
#include "profiler/report/judgement_json.h"
#include "profiler/report/place_totals.h"
#include "profiler/report/report.h"

namespace shardlens::profiler {

namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json value_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json categories_json(const CategoryBytes& bytes) {
  Json json = Json::object();
  for (size_t i = 0; i < kCategories; ++i) json[std::string(kWords<Category>[i])] = bytes[i];
  return json;
}

Json moment_json(const Moment& at, const std::string& action) {
  return {{"time_ns", at.time_ns},
          {"step", at.step},
          {"phase", to_string(at.phase)},
          {"action", at.action},
          {"action_text", action}};
}

/// Returns the part of a program that ran at a moment, "backward"; null: none was recorded.
Json part_json(const RankReport& rank, const Moment& at) {
  const auto part = program_part(rank.header, at.running);
  return part ? Json(to_string(*part)) : Json(nullptr);
}

/// Returns the module that allocated at a moment, "layers.11.mlp"; null: none is known.
Json module_json(const std::string& module) {
  return module.empty() ? Json(nullptr) : Json(module);
}

Json tensors_json(const std::vector<NamedAllocation>& tensors) {
  Json json = Json::array();
  for (size_t i = 0; i < std::min(kTensorRows, tensors.size()); ++i) {
    const NamedAllocation& tensor = tensors[i];
    json.push_back({{"bytes", tensor.given_bytes},
                    {"requested_bytes", tensor.asked_bytes},
                    {"category", to_string(tensor.category)},
                    {"label", tensor.label},
                    {"name", tensor.name},
                    {"action", tensor.action_id},
                    {"action_text", tensor.action},
                    {"age_steps", tensor.age_steps}});
  }
  return json;
}

/// Lists all places: their bytes add up to those of the peak.
Json places_json(const std::vector<NamedAllocation>& tensors) {
  Json json = Json::array();
  for (const PlaceTotal& place : place_totals(tensors)) {
    json.push_back({{"bytes", place.given_bytes},
                    {"requested_bytes", place.asked_bytes},
                    {"count", place.count},
                    {"largest_bytes", place.largest_bytes},
                    {"smallest_bytes", place.smallest_bytes},
                    {"category", to_string(place.category)},
                    {"label", place.label},
                    {"names", joined_names(place.names)},
                    {"action", place.action_id},
                    {"action_text", place.action},
                    {"youngest_steps", place.youngest_steps},
                    {"oldest_steps", place.oldest_steps}});
  }
  return json;
}

Json blocks_json(const BlockTotals& blocks) {
  return {{"requested_bytes", blocks.requested}, {"rounding_bytes", blocks.rounding},
          {"pending_bytes", blocks.pending},     {"split_bytes", blocks.split},
          {"cached_bytes", blocks.cached},       {"private_pool_bytes", blocks.in_private},
          {"reserved_bytes", blocks.reserved},   {"unplaced_bytes", blocks.unplaced}};
}

Json pieces_json(const FreePieces& pieces) {
  return {{"bytes", pieces.bytes},
          {"pieces", pieces.pieces},
          {"largest_bytes", pieces.largest},
          {"too_small_bytes", pieces.too_small},
          {"other_sizes_bytes", pieces.other_sizes},
          {"returnable_bytes", pieces.returnable}};
}

Json reserved_places_json(const ReservedReport& reserved, const std::vector<uint32_t>& places) {
  Json json = Json::array();
  for (const uint32_t place : places) {
    const ReservedPlace& one = reserved.places[place];
    json.push_back({{"category", to_string(one.category)}, {"label", one.label}});
  }
  return json;
}

Json pools_json(const ReservedReport& reserved) {
  Json json = Json::array();
  for (const PrivatePool& pool : reserved.parts.pools) {
    json.push_back({{"number", pool.number},
                    {"reserved_bytes", pool.reserved},
                    {"free_bytes", pool.free},
                    {"places", reserved_places_json(reserved, pool.places)}});
  }
  return json;
}

Json holders_json(const ReservedReport& reserved) {
  Json json = Json::array();
  for (const SegmentHolder& holder : reserved.parts.holders) {
    json.push_back({{"places", reserved_places_json(reserved, holder.places)},
                    {"segments", holder.segments},
                    {"blocks", holder.blocks},
                    {"used_bytes", holder.used},
                    {"free_bytes", holder.free},
                    {"youngest_steps", reserved.at.step - holder.youngest_step},
                    {"oldest_steps", reserved.at.step - holder.oldest_step}});
  }
  return json;
}

/// Lists the parts of reserved memory at one moment, which sum to `reserved_bytes`, and what keeps
/// the free ones from use.
Json reserved_json(const ReservedReport& reserved) {
  const ReservedParts& parts = reserved.parts;
  return {{"at", moment_json(reserved.at, reserved.action)},
          {"asked_bytes", reserved.asked_bytes},
          {"category", to_string(reserved.category)},
          {"label", reserved.label},
          {"reserved_bytes", parts.reserved},
          {"requested_bytes", parts.requested},
          {"rounding_bytes", parts.rounding},
          {"pending_bytes", parts.pending},
          {"free",
           {{"private_pools", pieces_json(parts.private_pools)},
            {"other_streams", pieces_json(parts.other_streams)},
            {"held", pieces_json(parts.held)},
            {"whole", pieces_json(parts.whole)}}},
          {"unplaced_bytes", parts.unplaced},
          {"returnable_bytes", parts.returnable()},
          {"largest_fit_bytes", parts.largest_fit},
          {"private_pools", pools_json(reserved)},
          {"holders", holders_json(reserved)}};
}

Json steps_json(const RankReport& rank) {
  Json json = Json::array();
  for (const StepPeak& step : rank.steps) {
    Json one = {{"step", step.step},
                {"peak_allocated_bytes", step.bytes[static_cast<size_t>(rank.main)]}};
    if (rank.reserved_peak_bytes()) {
      one["peak_reserved_bytes"] = step.bytes[static_cast<size_t>(Space::segment)];
    }
    json.push_back(std::move(one));
  }
  return json;
}

Json step_peak_json(const RankReport& rank) {
  if (!rank.step_peak) return nullptr;
  const auto& bytes = rank.step_peak->bytes;
  Json json = {{"allocated_bytes", bytes[static_cast<size_t>(rank.main)]},
               {"reserved_bytes", nullptr},
               {"step", rank.step_peak->step}};
  if (rank.reserved_peak_bytes()) {
    json["reserved_bytes"] = bytes[static_cast<size_t>(Space::segment)];
  }
  return json;
}

Json pattern_json(const RankReport& rank) {
  const auto pattern = pattern_of_steps(rank);
  if (!pattern) return nullptr;
  return {{"every", pattern->every},
          {"first_step", pattern->first_step},
          {"high_bytes", pattern->high_bytes},
          {"low_bytes", pattern->low_bytes}};
}

Json spaces_json(const RankReport& rank) {
  Json json = Json::object();
  for (size_t i = 0; i < kSpaces; ++i) {
    const auto& space = rank.spaces[i];
    if (!space) continue;
    Json phases = Json::object();
    for (size_t phase = 0; phase < kPhases; ++phase) {
      if (!space->phase_peaks[phase]) continue;
      phases[std::string(kWords<Phase>[phase])] = *space->phase_peaks[phase];
    }
    json[std::string(kWords<Space>[i])] = {{"peak_bytes", space->peak_bytes},
                                           {"end_bytes", space->end_bytes},
                                           {"phase_peak_bytes", std::move(phases)},
                                           {"at", moment_json(space->peak_at, space->peak_action)}};
  }
  return json;
}

Json ledger_json(const Ledger& ledger) {
  Json libraries = Json::array();
  for (const auto& [library, bytes] : ledger.libraries) {
    libraries.push_back({{"library", library}, {"bytes", bytes}});
  }
  return {{"device_total_bytes", value_or_null(ledger.device_total_bytes)},
          {"device_used_bytes", value_or_null(ledger.device_used_bytes)},
          {"before_bytes", value_or_null(ledger.before_bytes)},
          {"context_bytes", value_or_null(ledger.context_bytes)},
          {"reserved_bytes", value_or_null(ledger.reserved_bytes)},
          {"reserved", ledger.reserved_bytes ? blocks_json(ledger.blocks) : Json(nullptr)},
          {"driver_bytes", value_or_null(ledger.driver_bytes)},
          {"libraries", std::move(libraries)},
          {"residual_bytes", value_or_null(ledger.residual_bytes)}};
}

Json failures_json(const RankReport& rank) {
  Json json = Json::array();
  for (const OutOfMemory& failure : rank.out_of_memory) {
    json.push_back({{"at", moment_json(failure.at, failure.action)},
                    {"part", part_json(rank, failure.at)},
                    {"module", module_json(failure.module)},
                    {"requested_bytes", failure.asked_bytes},
                    {"category", to_string(failure.category)},
                    {"label", failure.label},
                    {"device_free_bytes", failure.device_free_bytes},
                    {"would_fit_bytes", failure.would_fit_bytes},
                    {"largest_free_bytes", failure.largest_free_bytes},
                    {"fragmentation", blocks_json(failure.blocks)},
                    {"reserved", reserved_json(failure.reserved)},
                    {"categories", categories_json(failure.given)},
                    {"tensors", tensors_json(failure.tensors)}});
  }
  return json;
}

Json counters_json(const RankReport& rank) {
  Json json = Json::object();
  for (size_t i = 0; i < kCounters; ++i) {
    const CounterReport& counter = rank.counters[i];
    if (counter.count == 0) continue;
    json[std::string(kWords<Counter>[i])] = {
        {"samples", counter.count}, {"largest", counter.largest}, {"last", counter.last}};
  }
  if (rank.losses.count > 0) {
    json["loss"] = {
        {"samples", rank.losses.count}, {"first", rank.losses.first}, {"last", rank.losses.last}};
  }
  return json;
}

/// Returns the host's memory: resident, and pinned. Null: not recorded.
Json host_json(const RankReport& rank) {
  const auto largest = [&](Counter counter) {
    const CounterReport& report = rank.counters[static_cast<size_t>(counter)];
    return report.count == 0 ? Json(nullptr) : Json(report.largest);
  };
  Json pinned = {{"held_bytes", largest(Counter::pinned_held)},
                 {"used_bytes", largest(Counter::pinned_used)},
                 {"asked_bytes", nullptr},
                 {"driver_bytes", nullptr},
                 {"places", Json::array()}};
  if (rank.pinned_use) pinned["asked_bytes"] = rank.pinned_use->asked_bytes;
  if (const auto& space = rank.spaces[static_cast<size_t>(Space::pinned)]) {
    pinned["driver_bytes"] = space->peak_bytes;
    pinned["places"] = places_json(space->tensors);
  }
  return {{"resident_bytes", largest(Counter::resident_host)}, {"pinned", std::move(pinned)}};
}

Json kept_json(const std::vector<KeptPlace>& kept) {
  Json json = Json::array();
  for (const KeptPlace& place : kept) {
    json.push_back({{"bytes", place.given_bytes},
                    {"count", place.count},
                    {"category", to_string(place.category)},
                    {"label", place.label},
                    {"caller", place.caller},
                    {"youngest_steps", place.youngest_steps},
                    {"oldest_steps", place.oldest_steps}});
  }
  return json;
}

Json at_peak_json(const RankReport& rank, const SpaceReport& space) {
  Json json = moment_json(space.peak_at, space.peak_action);
  json["part"] = part_json(rank, space.peak_at);
  json["module"] = module_json(space.peak_module);
  json["categories"] = categories_json(space.given);
  json["requested_categories"] = categories_json(space.asked);
  json["other_share"] = rank.other_share();
  json["tensors"] = tensors_json(space.tensors);
  json["places"] = places_json(space.tensors);
  json["kept_from_earlier_steps"] = kept_json(rank.kept);
  if (rank.main == Space::device) json["fragmentation"] = blocks_json(rank.blocks_at_peak);
  return json;
}

Json growth_json(const std::optional<Growth>& growth) {
  if (!growth) return nullptr;
  Json places = Json::array();
  for (const GrowingPlace& place : growth->places) {
    places.push_back({{"bytes_per_step", std::llround(place.bytes_per_step)},
                      {"category", to_string(place.category)},
                      {"label", place.label},
                      {"caller", place.caller},
                      {"is_replaced", place.is_replaced}});
  }
  return {{"text", growth_text(*growth)},
          {"bytes_per_step", std::llround(growth->bytes_per_step)},
          {"every_steps", growth->every},
          {"from_step", growth->from_step},
          {"last_step", growth->last_step},
          {"round", growth->round.empty() ? Json(nullptr) : Json(growth->round)},
          {"full_after_steps", value_or_null(growth->full_after_steps)},
          {"places", std::move(places)}};
}

Json rank_json(const RankReport& rank) {
  static const SpaceReport nothing;
  const SpaceReport& space = rank.main_space() == nullptr ? nothing : *rank.main_space();
  return {
      {"rank", rank.header.rank},
      {"device", rank.header.device},
      {"gpu", rank.header.gpu},
      {"notice", rank.header.notice},
      {"levers", pulled_levers(rank.header.config)},
      {"source", rank.source},
      {"judgement", judgement_json(rank.judgement)},
      {"peak",
       {{"allocated_bytes", space.peak_bytes},
        {"reserved_bytes", value_or_null(rank.reserved_peak_bytes())},
        {"requested_bytes", space.peak_asked_bytes}}},
      {"bands", bands_json(rank.bands)},
      {"growth", growth_json(rank.growth)},
      {"holders", holders_json(rank.holders)},
      {"step_peak", step_peak_json(rank)},
      {"steps", steps_json(rank)},
      {"step_pattern", pattern_json(rank)},
      {"at_peak", at_peak_json(rank, space)},
      {"at_reserved_peak", rank.reserved_peak ? reserved_json(*rank.reserved_peak) : Json(nullptr)},
      {"at_retry", rank.retry() ? reserved_json(rank.retry()->reserved) : Json(nullptr)},
      {"time", nullptr},  // the caller fills it in: this room does not predict
      {"at_end", {{"categories", categories_json(space.end_given)}}},
      {"spaces", spaces_json(rank)},
      {"ledger", ledger_json(rank.ledger)},
      {"host", host_json(rank)},
      {"out_of_memory", failures_json(rank)},
      {"out_of_memory_count", rank.out_of_memory_count},
      {"counters", counters_json(rank)},
      {"events", rank.events},
      {"has_times", rank.has_times},
      {"lost", rank.judgement.lost_events},
      {"unmatched", rank.unmatched},
      {"diagnostics", rank.judgement.faults}};
}

/// Says which ranks of how many were read, how many steps each has, and the worst state among them.
Json coverage_json(const std::vector<RankReport>& ranks) {
  Json json = {{"state", nullptr},
               {"world_size", nullptr},
               {"ranks", Json::array()},
               {"steps", Json::array()}};
  Judgement all;
  int32_t world_size = 0;
  for (const RankReport& rank : ranks) {
    all = joined(all, rank.judgement);
    world_size = std::max(world_size, rank.header.world_size);
    json["ranks"].push_back(rank.header.rank);
    json["steps"].push_back(rank.steps.size());
  }
  if (ranks.empty()) return json;
  json["state"] = to_string(all.state);
  json["world_size"] = world_size;
  return json;
}

}  // namespace

std::string report_json(const std::vector<RankReport>& ranks) {
  Json json = {{"schema", "shardlens.profile/1"},
               {"covers", coverage_json(ranks)},
               {"ranks", Json::array()}};
  for (const RankReport& rank : ranks) json["ranks"].push_back(rank_json(rank));
  // Labels come from the recorded program and need not be UTF-8.
  return json_text(json);
}

}  // namespace shardlens::profiler
