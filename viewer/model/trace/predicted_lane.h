// A recording's lane with the times that are predicted for its GPU, and what runs on the streams
// then.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "viewer/model/lane.h"
#include "viewer/model/lane_builder.h"
#include "viewer/model/trace/joined_trace.h"

namespace shardlens::viewer {

struct PredictedLane {
  Lane lane;
  std::shared_ptr<const JoinedTrace> work;
};

/// Reads a lane with predicted times, which its header's notice names. Nothing if the recording has
/// no trace of work, or a part alone, or is of a GPU whose rates are not known.
/// Throws as read_lane() does.
std::optional<PredictedLane> read_predicted_lane(const std::string& recording,
                                                 std::optional<profiler::Space> space,
                                                 const ReadProgress& tell);

}  // namespace shardlens::viewer
