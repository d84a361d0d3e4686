#include "viewer/model/trace/predicted_lane.h"

#include <fmt/format.h>

#include <utility>

#include "base/gpus.h"
#include "planner/time/rates.h"
#include "planner/time/step_time.h"
#include "planner/time/tasks/predicted_times.h"
#include "planner/time/time_report.h"
#include "profiler/file/reader.h"
#include "profiler/file/work_layer.h"

namespace shardlens::viewer {

namespace {

/// Returns "times as predicted on NVIDIA L4: 164 ms +-29 % a step, cold".
std::string notice_of(const profiler::WorkTrace& trace, const Gpu& gpu) {
  const planner::StepTime step = planner::step_time(trace, gpu);
  const std::string length =
      step.seconds > 0 ? planner::time_with_band(step) + " a step" : "no step was found";
  return fmt::format("times as predicted on {}: {}, {}", gpu.display_name, length,
                     planner::basis_of(step));
}

}  // namespace

std::optional<PredictedLane> read_predicted_lane(const std::string& recording,
                                                 std::optional<profiler::Space> space,
                                                 const ReadProgress& tell) {
  const profiler::Reader reader(recording);
  const Gpu* const gpu = planner::recorded_gpu(reader.header());
  const bool is_whole = reader.judgement().state == profiler::RecordingState::whole;
  if (gpu == nullptr || !is_whole || !reader.has_work()) return std::nullopt;
  const profiler::WorkTrace trace = profiler::read_work(recording);
  if (trace.empty() || !trace.faults.empty()) return std::nullopt;
  const planner::PredictedTimes times(trace, *gpu, {});
  const OtherTimes other{.time_of = [&](int64_t ns) { return times.time_of(ns); },
                         .end_ns = times.end_ns(),
                         .notice = notice_of(trace, *gpu)};
  Lane lane = read_lane(recording, space, tell, &other);
  auto work = std::make_shared<const profiler::GpuTrace>(times.gpu_work());
  return PredictedLane{.lane = std::move(lane), .work = std::make_shared<JoinedTrace>(work, 0)};
}

}  // namespace shardlens::viewer
