// The library libshardlens_event_times.so, which profiler/recording/event_times.h describes.

#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "base/gpus.h"
#include "planner/time/calibration.h"
#include "planner/time/tasks/simulated_events.h"
#include "profiler/file/work_layer.h"
#include "profiler/recording/event_times.h"

namespace shardlens::planner {

namespace {

class FollowedEvents final : public profiler::EventTimes {
 public:
  FollowedEvents(profiler::WorkTrace trace, const Gpu& gpu, const std::string& calibration)
      : trace_(std::move(trace)) {
    if (!calibration.empty()) calibration_ = TimeCalibration::read(calibration, gpu);
    events_.emplace(trace_, gpu,
                    StepTimeOptions{.calibration = calibration_ ? &*calibration_ : nullptr});
  }

  bool follow(std::span<const std::byte> payload, uint32_t items) override {
    try {
      profiler::decode_work(payload, items, trace_);
      return true;
    } catch (const std::exception&) {
      return false;
    }
  }

  double seconds_of(int64_t item) override {
    constexpr double kUnknown = -1;
    try {
      return events_->seconds_of(item).value_or(kUnknown);
    } catch (const std::exception&) {
      return kUnknown;
    }
  }

 private:
  profiler::WorkTrace trace_;
  std::optional<TimeCalibration> calibration_;
  std::optional<SimulatedEvents> events_;  // of the members above
};

}  // namespace

}  // namespace shardlens::planner

shardlens::profiler::EventTimes* shardlens_event_times(const char* recording, const char* gpu,
                                                       const char* calibration, const char** why) {
  static auto& failure = *new std::string();
  try {
    return new shardlens::planner::FollowedEvents(shardlens::profiler::read_work(recording),
                                                  shardlens::find_gpu(gpu), calibration);
  } catch (const std::exception& error) {
    failure = error.what();
    *why = failure.c_str();
    return nullptr;
  }
}
