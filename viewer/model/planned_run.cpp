#include "viewer/model/planned_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/gpus.h"
#include "base/input_file.h"
#include "base/limits.h"
#include "base/strict_json.h"
#include "planner/config/options.h"
#include "planner/plan_text.h"
#include "planner/planner.h"
#include "planner/time/time_report.h"
#include "viewer/model/lane_builder.h"

namespace shardlens::viewer {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// Returns the name in gpus.h of a GPU whose display name the driver gives; empty for an unknown
/// one.
std::string gpu_of_display_name(const std::string& display_name) {
  const Gpu* const gpu = find_displayed_gpu(display_name);
  return gpu == nullptr ? "" : std::string(gpu->name);
}

/// Returns the configuration with the device that a rank was really given; empty if it is not a
/// JSON object.
std::string config_on(const std::string& config, const std::string& device) {
  Json json = find_json(config, kWritten).value_or(nullptr);
  if (!json.is_object()) return "";
  if (!device.empty()) json["device"] = device;
  return json.dump();
}

/// Returns the configuration of a recording: for a program its command, with the rank that was
/// recorded.
std::string config_of(const profiler::Header& header) {
  const std::string config = config_on(header.config, header.device);
  Json json = find_ordered_json(config, kWritten).value_or(nullptr);
  if (!json.is_object() || !json.contains("command")) return config;
  json["world"] = header.world_size;
  json["solo_rank"] = header.rank;
  return json.dump();
}

std::string text_in_file(const std::string& path) {
  return read_file(path, kDescription.bytes, "give a plan's JSON or a run's config.json");
}

/// Returns the name of a request: a run's config.json is named after the run's folder, any other
/// file, such as plan.json, after itself.
std::string name_of_request(const std::string& path) {
  const fs::path file = fs::absolute(path).lexically_normal();
  const bool is_of_run = file.filename() == "config.json";
  return is_of_run ? file.parent_path().filename().string() + " plan" : file.stem().string();
}

/// Replaces the data with one random batch if its folder does not exist here, since a recording may
/// come from another machine. Returns true if it did.
bool stand_in_for_data(planner::Config& config) {
  constexpr std::array kWords = {"auto", "synthetic", "fashion-mnist"};
  std::error_code unreadable;
  const bool is_folder = std::ranges::find(kWords, config.data) == kWords.end();
  if (!is_folder || fs::is_directory(config.data, unreadable)) return false;
  config.data = "synthetic";
  return true;
}

Outlook outlook_of(const planner::Plan& plan) {
  return {.verdict = planner::verdict_line(plan),
          .fits = plan.verdict == planner::Verdict::fits,
          .needs_retries = plan.verdict == planner::Verdict::fits_with_retries,
          .device_bytes = plan.device_bytes,
          .capacity_bytes = plan.capacity_bytes.value_or(0),
          .headroom_bytes = plan.headroom_bytes.value_or(0),
          .step_seconds = plan.step_seconds,
          .step_time = plan.step_time ? planner::time_with_band(*plan.step_time) : ""};
}

}  // namespace

PlanRequest request_of(const Run& run) {
  const profiler::Header& header = run.at_peak().lane.info().header;
  return {.name = run.name,
          .config = config_of(header),
          .gpu = header.is_on_gpu() ? gpu_of_display_name(header.gpu) : ""};
}

PlanRequest request_of_file(const std::string& path) {
  const Json json = find_json(text_in_file(path), kDescription).value_or(nullptr);
  const bool is_plan = json.is_object() && json.contains("config") && json["config"].is_object();
  if (is_plan) {
    const auto text = [&](const char* key) {
      return json.contains(key) && json[key].is_string() ? json[key].get<std::string>() : "";
    };
    const std::string device = text("device");
    return {.name = name_of_request(path),
            .config = config_on(json["config"].dump(), device == "cuda" ? "" : device),
            .gpu = device == "cuda" ? text("gpu") : ""};
  }
  if (!json.is_object() || !json.contains("model")) {
    throw std::invalid_argument(fmt::format(
        "{}: neither a plan nor a configuration; give what `shardlens plan --json` prints, or a "
        "run's config.json",
        path));
  }
  return {.name = name_of_request(path), .config = json.dump(), .gpu = ""};
}

Run planned_run(const PlanRequest& request, std::optional<profiler::Space> space) {
  if (request.config.empty()) {
    throw std::invalid_argument(fmt::format(
        "{}: this recording does not say how it was made; use one from `shardlens train` "
        "or `shardlens plan`",
        request.name));
  }
  planner::Config config;
  planner::read_json(config, request.config, request.name);
  const bool is_stand_in = stand_in_for_data(config);
  planner::PlannedTimeline planned =
      planner::make_timeline(config, {.gpu = request.gpu, .explains = false});
  const std::string name = request.name + (is_stand_in ? " (synthetic data)" : "");
  Run run{.path = "", .name = name, .strategy = {}, .ranks = {}};
  run.strategy = strategy_text(request.config);
  run.outlook = outlook_of(planned.plan);
  run.request_name = request.name;
  run.request_config = request.config;
  ActionNames names(planned.timeline.header);
  Lane lane = lane_of(planned.timeline, space);
  const PassParts parts = parts_in(lane, names);
  run.ranks.push_back({.path = "",
                       .lane = std::move(lane),
                       .names = std::move(names),
                       .stamp = {},
                       .parts = parts});
  return run;
}

}  // namespace shardlens::viewer
