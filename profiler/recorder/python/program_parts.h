// Tells a recording which part of a step a Python program is in (ProgramPart). Python says when
// most parts begin and end; a forward is known by what it allocates.
#pragma once

#include "profiler/recorder/recorder.h"
#include "profiler/recording/profile.h"

namespace shardlens::profiler {

/// Says that the program enters a part, or leaves it. Parts may lie in each other. A backward, an
/// optimizer's step, a wait for input and a file that is saved end a forward.
void begin_part(Recorder& active, ProgramPart part);
void end_part(Recorder& active, ProgramPart part);

/// Says that a module's forward allocates now, outside of any backward.
void note_forward(Recorder& active);
/// Says that a forward that was noted has ended.
void end_forward(Recorder& active);

}  // namespace shardlens::profiler
