// Lanes that were opened before, kept as files that are mapped instead of parsed. A cached lane
// belongs to one state of one recording: its path, size and time of change. The folder is
// $XDG_CACHE_HOME/shardlens or ~/.cache/shardlens; recordings themselves are never written to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "viewer/model/lane.h"
#include "viewer/model/lane_builder.h"

namespace shardlens::viewer {

/// What tells one state of a recording from another, or from another recording.
struct RecordingStamp {
  std::string path;  // absolute
  int64_t bytes = 0;
  int64_t changed_ns = 0;

  bool operator==(const RecordingStamp&) const = default;
};

/// Of the file as it is now; of all zeros where it cannot be seen.
RecordingStamp stamp_of(const std::string& recording);

/// Where cached lanes are kept; empty where the environment names no home: then nothing is kept.
std::string default_cache_folder();

/// Nothing where the cache has no whole and undamaged lane of this recording as it is now. Reads
/// all of the lane's file.
std::optional<Lane> load_cached_lane(const std::string& folder, const RecordingStamp& stamp);

/// Written under another name and renamed. Says nothing where that fails (a full disk, no rights):
/// the lane is read again the next time. Removes the oldest lanes above `most_bytes`.
void save_cached_lane(const std::string& folder, const RecordingStamp& stamp, const Lane& lane,
                      int64_t most_bytes = int64_t{8} << 30);

/// The recording's lane, from `folder` where it is there, else read and, where its recording is
/// whole and long enough to be worth it, kept there. Throws as Reader does.
/// `space`: as LaneBuilder takes it; each is kept for itself. `tell`: as read_lane takes it.
Lane open_lane(const std::string& recording, const std::string& folder,
               std::optional<profiler::Space> space = std::nullopt, const ReadPart& tell = {});

}  // namespace shardlens::viewer
