#include "planner/plan_json.h"

#include <nlohmann/json.hpp>

#include "base/strict_json.h"
#include "planner/config/options.h"
#include "planner/time/time_report.h"

namespace shardlens::planner {

namespace {

using Json = nlohmann::ordered_json;

template <class T>
Json value_or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json peak_json(const SimulatedPeak& peak) {
  return {{"allocated_bytes", peak.allocated_bytes}, {"reserved_bytes", peak.reserved_bytes}};
}

void add_moment(Json& json, const PlanMoment& moment) {
  json["phase"] = to_string(moment.phase);
  json["step"] = moment.step;
  json["action"] = moment.action;
  json["action_text"] = moment.action_text;
}

Json tensor_json(const PlannedTensor& tensor) {
  return {{"bytes", tensor.bytes},
          {"category", to_string(tensor.category)},
          {"label", tensor.label},
          {"action_text", tensor.action_text}};
}

Json at_peak_json(const PlannedPeak& peak) {
  Json json = Json::object();
  add_moment(json, peak.moment);
  json["categories"] = Json::object();
  for (size_t i = 0; i < profiler::kCategories; ++i) {
    json["categories"][std::string(kWords<profiler::Category>[i])] = peak.category_bytes[i];
  }
  json["tensors"] = Json::array();
  for (const PlannedTensor& tensor : peak.largest) json["tensors"].push_back(tensor_json(tensor));
  return json;
}

Json outside_json(const OutsideMemory& outside) {
  const char* const from = outside.is_calibrated() ? "calibrated" : "cold";
  return {{"context_bytes", outside.context_bytes},
          {"modules_bytes", outside.modules_bytes},
          {"nccl_bytes", outside.nccl_bytes},
          {"communicators", outside.communicators},
          {"from", outside.given_bytes ? "given" : from},
          {"source", outside.source},
          {"beside_bytes", outside.total_bytes()},
          {"least_beside_bytes", outside.least_bytes()},
          {"most_beside_bytes", outside.most_bytes()},
          {"doubt", outside.doubt.empty() ? Json(nullptr) : Json(outside.doubt)}};
}

Json failure_json(const std::optional<PlanFailure>& failure) {
  if (!failure) return nullptr;
  Json json = Json::object();
  add_moment(json, failure->moment);
  json["tensor"] = tensor_json(failure->wanted);
  return json;
}

Json ranks_json(const std::vector<RankPlan>& ranks) {
  Json json = Json::array();
  for (const RankPlan& rank : ranks) {
    json.push_back({{"rank", rank.rank},
                    {"allocated_bytes", rank.peak.allocated_bytes},
                    {"reserved_bytes", rank.peak.reserved_bytes},
                    {"ranks_alike", rank.count}});
  }
  return json;
}

Json what_ifs_json(const std::vector<WhatIf>& what_ifs, std::string_view basis) {
  Json json = Json::array();
  for (const WhatIf& what_if : what_ifs) {
    json.push_back({{"change", what_if.change},
                    {"device_bytes", what_if.device_bytes},
                    {"step_time_ratio", what_if.step_time_ratio},
                    {"step_time_basis", basis},
                    {"compute_time_ratio", what_if.compute_time_ratio}});
  }
  return json;
}

Json solution_json(const std::optional<PlanSolution>& solution) {
  if (!solution) return nullptr;
  Json value = nullptr;
  if (solution->what == "gpu" && !solution->value.empty()) value = solution->value;
  if (solution->what != "gpu" && !solution->value.empty()) value = std::stoll(solution->value);
  return {{"what", solution->what}, {"value", std::move(value)}};
}

}  // namespace

std::string plan_json(const Plan& plan) {
  Json peak = peak_json(plan.peak);
  peak["device_bytes"] = plan.device_bytes;
  const Json json = {
      {"schema", "shardlens.plan/1"},
      {"config", Json::parse(to_json(plan.config))},
      {"model", {{"name", plan.model}, {"parameters", plan.parameters}}},
      {"device", text_of(plan.device)},
      {"engine", "shardlens"},
      {"torch",
       {{"version", plan.torch->version},
        {"source", plan.is_torch_asked ? "--torch" : "this build"},
        {"doubt", nullptr}}},
      {"program", nullptr},
      {"gpu", plan.gpu},
      {"peak", std::move(peak)},
      {"step_peak", peak_json(plan.step_peak)},
      {"static_bytes", plan.static_bytes},
      {"pinned_bytes", plan.pinned_bytes},
      {"host_bytes", plan.host_bytes},
      {"outside", outside_json(plan.outside)},
      {"ranks", ranks_json(plan.ranks)},
      {"at_peak", at_peak_json(plan.at_peak)},
      {"capacity_bytes", value_or_null(plan.capacity_bytes)},
      {"headroom_bytes", value_or_null(plan.headroom_bytes)},
      {"verdict", to_string(plan.verdict)},
      {"retries", plan.retries},
      {"doubt", nullptr},
      {"verdict_doubts", plan.verdict_doubts},
      {"bands", profiler::bands_json(plan.bands)},
      {"fails_at", failure_json(plan.failure)},
      {"least_capacity_bytes", {{"fast", plan.least_fast_bytes}, {"any", plan.least_any_bytes}}},
      {"expandable_segments",
       {{"would_fit", value_or_null(plan.expandable_segments_fit)},
        {"device_bytes",
         plan.expandable_segments_fit ? Json(plan.expandable_device_bytes) : Json(nullptr)}}},
      {"step_seconds", plan.step_seconds},
      {"step_time",
       plan.step_time ? step_time_json(*plan.step_time, find_gpu(plan.gpu)) : Json(nullptr)},
      {"what_if", what_ifs_json(plan.what_ifs, planned_basis(plan.step_time.has_value()))},
      {"solve", solution_json(plan.solution)}};
  // A model file's path need not be UTF-8.
  return json_text(json);
}

}  // namespace shardlens::planner
