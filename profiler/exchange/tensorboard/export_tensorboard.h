// Writes the memory of a recording's steps as scalars that TensorBoard reads.
#pragma once

#include <ostream>
#include <span>
#include <string>

#include "profiler/exchange/tensorboard/step_memory.h"
#include "profiler/recording/profile.h"

namespace shardlens::profiler {

/// Returns the name of a rank's file in its folder. TensorBoard takes a file with "tfevents" in its
/// name, and orders those of a folder by name; the same recording always has the same name.
std::string tensorboard_file(const Header& header);

/// Writes an event file: records of TensorFlow, each a message Event of protocol buffers. It has
/// the scalars "peak MiB/allocated", "peak MiB/reserved" and "peak MiB/" with a category's name, in
/// each of the steps and at the time of its peak. Categories that are empty in all of them are left
/// out.
void export_tensorboard(const Header& header, std::span<const StepMemory> steps, std::ostream& out);

}  // namespace shardlens::profiler
