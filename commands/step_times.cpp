#include "commands/step_times.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/device.h"
#include "base/gpus.h"
#include "base/strict_json.h"
#include "planner/time/step_time.h"
#include "planner/time/time_report.h"
#include "profiler/file/reader.h"
#include "profiler/file/work_layer.h"

namespace shardlens {

namespace {

const Gpu& gpu_of(const std::string& path, const profiler::Header& header) {
  if (header.device.starts_with(kNullDevice)) {
    return find_gpu(header.device.substr(kNullDevice.size()));
  }
  if (const Gpu* const known = find_displayed_gpu(header.gpu)) return *known;
  throw std::invalid_argument(
      fmt::format("{}: recorded on {}, whose rates are not known; give a GPU with --gpu", path,
                  header.gpu.empty() ? header.device : header.gpu));
}

/// A recording's trace of work, and the GPU whose time is asked for.
struct TimedRecording {
  int32_t rank = 0;
  const Gpu& gpu;
  planner::StepTime time;
};

TimedRecording timed(const std::string& path, const profiler::TimeRequest& request) {
  const profiler::Header header = profiler::Reader(path).header();
  const Gpu& gpu = request.gpu.empty() ? gpu_of(path, header) : find_gpu(request.gpu);
  const profiler::WorkTrace trace = profiler::read_work(path);
  if (trace.empty()) {
    throw std::invalid_argument(fmt::format(
        "{}: has no trace of work, from which a step's time is predicted; record again with --time",
        path));
  }
  return {header.rank, gpu, planner::step_time(trace, gpu, {.host = request.host})};
}

}  // namespace

std::string step_time_of(const std::string& path, const profiler::TimeRequest& request) {
  const TimedRecording found = timed(path, request);
  if (!request.json) return planner::step_time_text(found.time, found.gpu);
  nlohmann::ordered_json json = planner::step_time_json(found.time, found.gpu);
  json["rank"] = found.rank;
  return json_text(json);
}

profiler::PredictedTime predicted_time_of(const std::string& path) {
  try {
    const planner::StepTime time = timed(path, {}).time;
    if (time.seconds <= 0) return {.why = "the trace has no work of a GPU"};
    return {.seconds = time.seconds,
            .text = planner::time_with_band(time),
            .error = time.error,
            .tokens_a_second = time.batch.tokens / time.seconds,
            .samples_a_second = time.batch.samples / time.seconds,
            .basis = "cold",
            .doubts = time.doubts};
  } catch (const std::exception& error) {
    return {.why = error.what()};
  }
}

}  // namespace shardlens
