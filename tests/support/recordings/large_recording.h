// A recording of a given number of events, of a synthetic training run, for code that is slow to
// read.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "profiler/file/writer.h"
#include "tests/support/recordings/synthetic_profile.h"

namespace shardlens::tests {

/// Waits if the writer falls behind, so that nothing is lost. Returns what the writer counted.
inline profiler::WriterCounts write_large_recording(const std::string& path, int64_t events) {
  constexpr int64_t kEventsAStep = 2000;  // a lower bound
  SyntheticTrace trace({.steps = static_cast<int>(events / kEventsAStep) + 1});
  profiler::Writer writer(path, trace.header());
  for (const std::string& text : trace.strings()) writer.intern(text);
  int64_t taken = 0;
  trace.run([&](const profiler::Event& event) {
    if (taken >= events) return;
    writer.append(event);
    if (++taken % 65536 != 0) return;
    while (writer.counts().sealed < taken - 500'000) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  writer.close();
  return writer.counts();
}

}  // namespace shardlens::tests
