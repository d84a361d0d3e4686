// Keeps lanes that were opened before as files that are mapped instead of parsed. A cached lane
// belongs to one state of one recording: its path, size and time of change. The folder is
// $XDG_CACHE_HOME/shardlens or ~/.cache/shardlens; recordings themselves are never written to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "viewer/model/lane.h"
#include "viewer/model/lane_builder.h"

namespace shardlens::viewer {

/// Identifies one state of a recording among other states and other recordings.
struct RecordingStamp {
  std::string path;  // absolute
  int64_t bytes = 0;
  int64_t changed_ns = 0;

  bool operator==(const RecordingStamp&) const = default;
};

/// Returns the stamp of the file as it is now; an empty one, all zeros, if the file cannot be
/// accessed.
RecordingStamp stamp_of(const std::string& recording);

/// Returns the folder of cached lanes; empty if the environment names no home; then nothing is
/// cached.
std::string default_cache_folder();

/// Returns the cached lane of this recording as it is now, or nothing if the cache has none that is
/// whole and undamaged. Reads the lane's whole file.
std::optional<Lane> load_cached_lane(const std::string& folder, const RecordingStamp& stamp);

/// Saves a lane under another name and renames it. If that fails (a full disk, no rights), it
/// reports nothing: the recording is parsed again next time. Removes the oldest lanes beyond
/// `most_bytes`.
void save_cached_lane(const std::string& folder, const RecordingStamp& stamp, const Lane& lane,
                      int64_t most_bytes = int64_t{8} << 30);

/// Returns the lane of a recording that has no trace of its work, if it is cached in `folder`. Each
/// space is cached separately.
std::optional<Lane> find_cached_lane(const std::string& recording, const std::string& folder,
                                     std::optional<profiler::Space> space);

/// Returns the recording's lane, from `folder` if it is cached, else by reading the recording. A
/// lane that was read is cached if the recording is whole, has no trace of its work, and is long
/// enough to be worth it. `space` and `tell` are as in read_lane. Throws as read_lane does.
Lane open_lane(const std::string& recording, const std::string& folder,
               std::optional<profiler::Space> space = std::nullopt, const ReadProgress& tell = {});

}  // namespace shardlens::viewer
