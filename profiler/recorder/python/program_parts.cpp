#include "profiler/recorder/python/program_parts.h"

#include <atomic>

namespace shardlens::profiler {

namespace {

std::atomic<bool> in_forward = false;

void begin(Recorder& active, ProgramPart part) { active.begin_action(static_cast<int32_t>(part)); }
void end(Recorder& active, ProgramPart part) { active.end_action(static_cast<int32_t>(part)); }

}  // namespace

void begin_part(Recorder& active, ProgramPart part) {
  end_forward(active);
  begin(active, part);
}

void end_part(Recorder& active, ProgramPart part) {
  end_forward(active);  // one of a closure of the optimizer's
  end(active, part);
}

void note_forward(Recorder& active) {
  if (in_forward.load(std::memory_order_relaxed) || in_forward.exchange(true)) return;
  begin(active, ProgramPart::forward);
}

void end_forward(Recorder& active) {
  if (!in_forward.load(std::memory_order_relaxed) || !in_forward.exchange(false)) return;
  end(active, ProgramPart::forward);
}

}  // namespace shardlens::profiler
