// Lists the keys of each format; every table has a file of its own. Private to
// planner/config/foreign/.
#pragma once

#include <span>

#include "planner/config/foreign/foreign.h"

namespace shardlens::planner {

std::span<const ForeignKey> deepspeed_keys();
std::span<const ForeignKey> accelerate_keys();
std::span<const ForeignKey> torchtitan_keys();

}  // namespace shardlens::planner
