// Prints, in one line, whether the driver's calls can be watched in a process like this one.
#include <cstdio>

#include "profiler/recorder/driver.h"

int main() {
  const shardlens::profiler::DriverWatch watch([](const shardlens::profiler::DriverChange&) {});
  std::puts(watch.is_watching() ? "watching" : watch.unavailable_reason()->c_str());
}
