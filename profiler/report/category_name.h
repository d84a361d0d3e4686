// Names categories for people, in the words of the program that was recorded.
#pragma once

#include <string_view>

#include "profiler/profile.h"

namespace shardlens::profiler {

/// True if the recorded program cuts its parameters into shards. A program without a schedule of
/// ours may not, and one rank alone never does.
bool has_shards(const Header& header);

/// Returns the category's name: "parameters" in place of "parameter_shard" if nothing is sharded.
std::string_view category_name(Category category, bool has_shards);

}  // namespace shardlens::profiler
