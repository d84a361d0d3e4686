// A recording that is in memory as a file.
#pragma once

#include <string>

#include "profiler/profile.h"

namespace shardlens::profiler {

/// Loses no event, however slow the disk is. Of the judgement only the lost events are kept. Throws
/// std::runtime_error where the file cannot be written.
void write_recording(const Profile& profile, const std::string& path);

}  // namespace shardlens::profiler
