// Writes a recording that is in memory to a file.
#pragma once

#include <string>

#include "profiler/recording/profile.h"

namespace shardlens::profiler {

/// Writes the profile without losing an event, however slow the disk is. Only the number of lost
/// events is kept from its judgement. Throws std::runtime_error if the file cannot be written.
void write_recording(const Profile& profile, const std::string& path);

}  // namespace shardlens::profiler
