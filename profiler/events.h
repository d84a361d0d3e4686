// What everybody needs who walks over the events of a recording, whole or damaged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profiler/profile.h"

namespace shardlens::profiler {

/// No event has as many; what says so is damaged.
constexpr int64_t kMostEventBytes = int64_t{1} << 48;

/// An allocation or a free.
bool is_memory(const Event& event);

/// Whether the fields can be used: damage leaves events that name no kind, space, category, phase
/// or counter, or have impossible sizes.
bool is_usable(const Event& event);

/// The actions of a schedule's text by id, each line without the id and with single blanks:
/// "BACKWARD unit=mlp3 group=block3 bucket=0 stream=main ...".
std::vector<std::string> action_lines(const std::string& schedule);

}  // namespace shardlens::profiler
